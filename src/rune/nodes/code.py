"""The code node: Python of the user's, in a process of its own."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

__all__ = ["Code"]


class Code(NodeType, kw_only=True):
    """Run Python code in a separate, restricted process; the output is its `result`.

    The code sees its `args` as variables. It sets `result`, or defines `main`, which is called with the
    arguments. It has no access to the engine, its memory or its environment.
    """

    name: ClassVar = "code"
    verbatim: ClassVar = ("code",)

    code: Annotated[
        str, Meta(description="Python that sets `result`, or defines `main(**args)`.", min_length=1)
    ]
    args: Annotated[dict[str, Any] | None, Meta(description="Variables the code sees, by name.")] = None
    timeout: Annotated[float, Meta(description="Seconds it may take.", gt=0, le=86400)] = 300
    memory: Annotated[int, Meta(description="Megabytes it may use.", ge=64, le=65536)] = 1024

    async def run(self, context: StepContext) -> Outcome:
        return Done(await execute(self.code, self.args or {}, self.timeout, self.memory, context))


async def execute(code: str, args: dict[str, Any], timeout: float, memory: int, context: StepContext) -> Any:
    """Run code with the worker's Python service; what it prints goes to the log."""
    from rune.nodes._python import Limits, Python

    python: Python = context.service("python")
    result, printed = await python.run(code, args, Limits(timeout, memory << 20))
    for line in printed.splitlines()[:100]:
        context.log("info", line)
    return result
