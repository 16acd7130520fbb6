"""A loop spread over workers: enter, open one shard an element, gather them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from rune.core.errors import ErrorInfo, NodeError
from rune.core.expressions import ExpressionError, to_text
from rune.core.node import Gathered, NodeType, Role, StepContext
from rune.core.outcome import Arrive, Done, FanOut, Outcome, Policy, Source
from rune.core.playbook.collection import chunks, elements, source_of
from rune.core.playbook.memory import Memory
from rune.core.playbook.program import Program, Reducer, holds
from rune.core.playbook.routing import route
from rune.nodes.playbook.scope import EVERY, Token, branch_of, skipped, token_of

__all__ = ["Enter", "Join", "OpenShards"]


class Enter(NodeType, kw_only=True):
    """Accept the token, or let it end here."""

    name: ClassVar = "playbook.enter"
    effects: ClassVar = False
    trusted: ClassVar = True

    program: Any
    steps: Mapping[str, str]

    async def run(self, context: StepContext) -> Outcome:
        program: Program = self.program
        token = token_of(context)
        args = token.args_of(context)
        names = {"ctx": token.ctx, "args": args, "vars": dict(program.vars)}
        if not holds(program.when, Memory(branch_of(context, self.steps), names)):
            return skipped(token)
        return Done(Token(token.ctx, {EVERY: args}).output(None), working=True)


class OpenShards(NodeType, kw_only=True):
    """Open the fan-out: one shard an element."""

    name: ClassVar = "playbook.open"
    role: ClassVar = Role.SPLIT
    effects: ClassVar = False
    trusted: ClassVar = True

    program: Any
    steps: Mapping[str, str]
    key: Any = None
    """A template over the element: what an element is."""
    fail_fast: bool = False
    window: int = 0
    max_shards: int = 0

    async def run(self, context: StepContext) -> Outcome:
        loop = self.program.loop
        token = token_of(context)
        memory = Memory(
            branch_of(context, self.steps), {"ctx": token.ctx, "vars": {}, "args": token.args_of(context)}
        )
        try:
            value = loop.source.resolve(memory)
        except ExpressionError as error:
            raise NodeError(f"`loop.in` cannot be evaluated: {error}", "PLAYBOOK_LOOP") from error
        policy = Policy(tolerated=0 if self.fail_fast else None)
        parts = chunks(value, self.max_shards) if self.max_shards else None
        if self.key is None and parts is None:
            return FanOut(source_of(value), policy, window=self.window)
        keyed = [part.elements()[0] for part in parts] if parts else elements(value)
        source = Source(items=msgspec.to_builtins(parts) if parts else list(keyed))
        # The keys are as much as the elements: they are stored together.
        return FanOut(source, policy, window=self.window, keys=self._keys(keyed, memory))

    def _keys(self, items: Sequence[Any], memory: Memory) -> list[str] | None:
        if self.key is None:
            return None
        iterator = self.program.loop.iterator
        return [to_text(self.key.resolve(memory.within(iter={iterator: item}))) for item in items]


class Join(NodeType, kw_only=True):
    """Gather the shards, fold what they share, and route the token."""

    name: ClassVar = "playbook.join"
    role: ClassVar = Role.GATHER
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    reads: ClassVar = ("$json", "$previous")

    program: Any
    steps: Mapping[str, str]
    reducers: Mapping[str, Reducer] = {}
    allow_partial: bool = False
    timeout: Annotated[float | None, Meta(gt=0)] = None

    async def run(self, context: StepContext) -> Outcome:
        if context.gathered is not None:
            return self._fan_in(context, context.gathered)
        left = msgspec.json.decode(context.previous())
        return Arrive({"results": left["results"], "shared": left["shared"]})

    def _fan_in(self, context: StepContext, gathered: Gathered) -> Outcome:
        program: Program = self.program
        slots = msgspec.json.decode(gathered.results)
        error = self._failure(gathered, slots)
        token = token_of(context)
        shared = {name: _reduced(op, name, slots) for name, op in self.reducers.items()}
        results = [result for slot in slots for result in _results(slot)]
        result = {
            "results": results,
            "count": len(results),
            **({"shared": shared} if self.reducers else {}),
        }
        status = "failed" if error else "partial" if gathered.failed else "complete"
        counts = {"status": status, "succeeded": gathered.succeeded, "failed": gathered.failed}
        refs = [f"{context.barrier}.{index}" for index, slot in enumerate(slots) if _is_result(slot)]
        memory = Memory(
            branch_of(context, self.steps),
            {"ctx": token.ctx, "vars": dict(program.vars), "args": token.args_of(context)},
        )
        memory.know(fanin={**counts, "refs": refs}, shared=shared, _prev=result, **{program.step: result})
        event = "step.failed" if error else "loop.done"
        way = route(program, memory, event, error)
        details = {"event": event, "loop_id": context.barrier, "fanin": counts}
        return Done(
            Token(token.ctx, way.args, way.unmet).output(result),
            way.ports,
            working=True,
            error=error or way.unmet,
            details=details,
        )

    def _failure(self, gathered: Gathered, slots: list[Any]) -> ErrorInfo | None:
        if not gathered.failed or (self.allow_partial and gathered.succeeded):
            return None
        first = next(slot["error"] for slot in slots if isinstance(slot, dict) and "error" in slot)
        return ErrorInfo(
            f"{gathered.failed} of {gathered.total} shards failed; the first: {first.get('message')}",
            "SHARDS_FAILED",
            {"failed": gathered.failed, "first": first},
        )


def _results(slot: Any) -> list[Any]:
    """What a shard's elements gave; null for each of one that failed."""
    if _is_result(slot):
        given: list[Any] = slot["results"]
        return given
    details = (slot["error"].get("details") or {}) if isinstance(slot, dict) else {}
    return [None] * details.get("elements", 1)


def _is_result(slot: Any) -> bool:
    return isinstance(slot, dict) and "error" not in slot


def _reduced(op: Reducer, name: str, slots: list[Any]) -> Any:
    """What the shards wrote under one name, folded in their order, once each."""
    told = [shared for slot in slots if _is_result(slot) for shared in slot["shared"]]
    values = [shared[name] for shared in told if name in shared]
    if op == "append":
        return values
    if op == "merge":
        together: dict[str, Any] = {}
        for value in values:
            together.update(value)
        return together
    if not values:
        return 0 if op == "sum" else None
    fold: Callable[[list[Any]], Any] = {"sum": sum, "min": min, "max": max}[op]  # type: ignore[assignment]
    return fold(values)
