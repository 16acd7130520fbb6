"""The scope in which all tokens of a playbook live: it is over when nothing is live any more."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from rune.core.errors import ErrorInfo
from rune.core.node import Gathered, NodeType, Role, StepContext
from rune.core.outcome import Arrive, Done, Failed, FanOut, Outcome, Source
from rune.core.playbook.memory import merged
from rune.nodes.playbook.scope import EVERY

__all__ = ["Ended", "Tokens", "Verdict"]

_ARRIVAL = "~token"
"""Marks what one token leaves, among what several may have left."""


class Tokens(NodeType, kw_only=True):
    """Open the scope, for one item: the playbook itself."""

    name: ClassVar = "playbook.tokens"
    role: ClassVar = Role.SPLIT
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    async def run(self, context: StepContext) -> Outcome:
        return FanOut(Source(items=[None]))


class Ended(NodeType, kw_only=True):
    """Close the scope: what the tokens leave, and the first failure that no arc met."""

    name: ClassVar = "playbook.ended"
    role: ClassVar = Role.GATHER
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    reads: ClassVar = ("$json",)
    streams: ClassVar = True

    steps: dict[str, str]
    """The name in the context of each step's output."""
    writes_ctx: bool = False
    timeout: float | None = None

    async def run(self, context: StepContext) -> Outcome:
        if context.gathered is not None:
            return await self._whole(context, context.gathered)
        token = context.value("$json")
        return Arrive(
            {
                _ARRIVAL: True,
                "ctx": token["ctx"],
                "args": token["args"].get(context.edge) or {},
                "unmet": token.get("unmet"),
                "steps": self._results(context),
            }
        )

    def _results(self, context: StepContext) -> dict[str, Any]:
        """The results of the steps that this token has passed."""
        found = {}
        for step, key in self.steps.items():
            try:
                found[step] = context.value(key)["result"]
            except KeyError:
                continue
        return found

    async def _whole(self, context: StepContext, gathered: Gathered) -> Outcome:
        assert gathered.pages is not None
        if gathered.failed_as is not None:
            return gathered.failed_as
        slot = None
        async for page in gathered.pages():
            for _, data in page:
                slot = msgspec.json.decode(data)
        ctx: dict[str, Any] = {}
        args: dict[str, Any] = {}
        steps: dict[str, Any] = {}
        unmet = slot.get("error") if isinstance(slot, dict) and _ARRIVAL not in slot else None
        for left in _arrivals(slot):
            ctx = merged(ctx, left["ctx"])
            args |= left.get("args") or {}
            steps.update(left["steps"])
            unmet = unmet or left["unmet"]
        if self.writes_ctx:
            # No token is live any more, so these stay as they are.
            ctx |= await context.variables()
        # What arcs to the final step bring is for it.
        token = {"ctx": ctx, "args": {EVERY: args}, "unmet": unmet}
        return Done({"$json": token, "ctx": ctx, "steps": steps}, working=True)


class Verdict(NodeType, kw_only=True):
    """The playbook's result: what its steps gave, or the failure that no arc met."""

    name: ClassVar = "playbook.verdict"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    reads: ClassVar = ("$json", "$~ended")

    final: str = ""
    """The final step, where there is one: its result belongs to the whole."""

    async def run(self, context: StepContext) -> Outcome:
        ended, token = context.value("$~ended"), context.value("$json")
        unmet = ended["$json"].get("unmet") or token.get("unmet")
        if unmet:
            return Failed(msgspec.convert(unmet, ErrorInfo), engine=True)
        steps = dict(ended["steps"])
        if self.final:
            steps[self.final] = context.value(f"${self.final}")["result"]
        return Done({"ctx": merged(ended["ctx"], token["ctx"]), "steps": steps})


def _arrivals(slot: Any) -> list[Any]:
    """What the tokens left; several are an object by the node each came from, or a list of it."""
    if isinstance(slot, list):
        return [left for part in slot for left in _arrivals(part)]
    if not isinstance(slot, dict):
        return []
    if _ARRIVAL in slot:
        return [slot]
    return [left for part in slot.values() for left in _arrivals(part)]
