"""A loop spread over workers, at its end: gather the shards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Raw

from rune.core.errors import ErrorInfo
from rune.core.node import Gathered, NodeType, Role, StepContext
from rune.core.outcome import Arrive, Done, Outcome
from rune.core.playbook.memory import Memory
from rune.core.playbook.program import Arc, Program
from rune.core.playbook.routing import read_by, route
from rune.nodes._results import loaded
from rune.nodes.playbook.fanin import FanIn, left
from rune.nodes.playbook.scope import Token, branch_of, token_of

__all__ = ["Join"]

_COUNTS = re.compile(r"\bfanin\.(status|succeeded|failed|loop_id)\b")


class Join(NodeType, kw_only=True):
    """Gather the shards, fold what they share, and route the token."""

    name: ClassVar = "playbook.join"
    role: ClassVar = Role.GATHER
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    streams: ClassVar = True
    reads: ClassVar = ("$json", "$previous")

    program: Any
    steps: Mapping[str, str]
    allow_partial: bool = False
    timeout: Annotated[float | None, Meta(gt=0)] = None

    async def run(self, context: StepContext) -> Outcome:
        gathered = context.gathered
        if gathered is None:
            return Arrive(left(context.previous(), context.frame))
        program: Program = self.program
        fan_in = FanIn(context, program.reducers, naming=_asks_for_refs(program.arcs))
        await fan_in.read(gathered)
        result = await fan_in.result()
        error = self._failure(gathered, fan_in.first_error) or fan_in.shared.error
        status = "failed" if error else "partial" if gathered.failed else "complete"
        counts = {"status": status, "succeeded": gathered.succeeded, "failed": gathered.failed}
        token = token_of(context)
        memory = await self._memory(context, token, msgspec.json.decode(result))
        refs = await fan_in.refs()
        memory.know(fanin={**counts, "loop_id": context.barrier, "refs": refs})
        event = "step.failed" if error else "loop.done"
        way = route(program, memory, event, error)
        return Done(
            Token(token.ctx, way.args, way.unmet).output(Raw(result)),
            way.ports,
            working=True,
            error=error or way.unmet,
            details={"event": event, "loop_id": context.barrier, "fanin": counts},
        )

    async def _memory(self, context: StepContext, token: Token, result: Any) -> Memory:
        """What the arcs may read: the results themselves only if they do."""
        program: Program = self.program
        read = read_by(program.arcs)
        memory = Memory(
            await branch_of(context, self.steps).loading(read),
            {"ctx": token.ctx, "vars": dict(program.vars), "args": token.args_of(context)},
        )
        if read & {"shared", "_prev", program.step}:
            value = await loaded(context, result)
            memory.know(shared=value.get("shared", {}))
            memory.know_result(program.step, value)
        return memory

    def _failure(self, gathered: Gathered, first: Mapping[str, Any]) -> ErrorInfo | None:
        if gathered.failed_as is not None and not gathered.failed:
            return gathered.failed_as.error
        if not gathered.failed or (self.allow_partial and gathered.succeeded):
            return None
        return ErrorInfo(
            f"{gathered.failed} of {gathered.total} shards failed; the first: {first.get('message')}",
            "SHARDS_FAILED",
            {"failed": gathered.failed, "first": dict(first)},
        )


def _asks_for_refs(arcs: Sequence[Arc]) -> bool:
    """Whether arcs read more of `fanin` than how the shards ended: references cost a stored value each."""
    return "fanin" in _COUNTS.sub("", repr([(arc.when, arc.args) for arc in arcs]))
