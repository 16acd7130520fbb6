"""The merge node: branches that parted become one again."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from rune.core.node import NodeType, Role, StepContext
from rune.core.outcome import Done, Join, Outcome

__all__ = ["Merge"]


class Merge(NodeType, kw_only=True):
    """Join branches: wait for all of them, for the first, or for some."""

    name: ClassVar = "merge"
    role: ClassVar = Role.MERGE
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    mode: Annotated[Literal["append"], Meta(description="How payloads are put together: in a list.")] = (
        "append"
    )
    wait_mode: Annotated[
        Literal["wait_for_all", "wait_for_any", "wait_for_n"],
        Meta(description="How many branches to wait for."),
    ] = "wait_for_all"
    n: Annotated[int | None, Meta(description="Branches to wait for, with `wait_for_n`.", ge=1)] = None
    timeout: Annotated[
        float | None, Meta(description="Seconds to wait, from the first arrival on.", gt=0)
    ] = None

    def __post_init__(self) -> None:
        if self.wait_mode == "wait_for_n" and self.n is None:
            raise ValueError("`wait_for_n` needs the number of branches, in `n`")

    def need(self) -> int | None:
        return {"wait_for_all": None, "wait_for_any": 1, "wait_for_n": self.n}[self.wait_mode]

    async def run(self, context: StepContext) -> Outcome:
        gathered = context.gathered
        if gathered is None:
            return Join()
        output: dict[str, Any] = {"merged": gathered.results}
        if self.wait_mode != "wait_for_all":
            output["winner"] = gathered.winner
        return Done(output)
