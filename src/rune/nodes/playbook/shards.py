"""A loop that is spread over workers, at its beginning: take the token in, and open one shard an element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from rune.core.errors import NodeError
from rune.core.expressions import ExpressionError, to_text
from rune.core.naming import short_key
from rune.core.node import NodeType, Portion, Role, StepContext
from rune.core.outcome import IN_FLIGHT, Done, FanOut, Outcome, Policy, Source
from rune.core.playbook.collection import chunks, elements, source_of
from rune.core.playbook.memory import Memory
from rune.core.playbook.program import Loop, Program, holds
from rune.core.workflow import Retry
from rune.nodes._results import loaded
from rune.nodes._sources import RETRY, read_portion
from rune.nodes.playbook.scope import EVERY, Token, arrived, branch_of, collection_of, skipped, token_of

__all__ = ["Enter", "OpenShards"]

_FAILED = "~failed"
"""Describes, as a source, why there is none."""


class Enter(NodeType, kw_only=True):
    """Accept the token, or let it end here."""

    name: ClassVar = "playbook.enter"
    effects: ClassVar = False
    trusted: ClassVar = True

    program: Any
    steps: Mapping[str, str]

    async def run(self, context: StepContext) -> Outcome:
        program: Program = self.program
        token = await arrived(context, program)
        args = token.args_of(context)
        names = {"ctx": token.ctx, "args": args, "vars": dict(program.vars)}
        branch = branch_of(context, self.steps)
        if program.when and not holds(program.when, Memory(await branch.loading(program.when.names), names)):
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
    fail_fast: bool = False
    window: int = 0
    max_shards: int = 0

    def retry_policy(self) -> Retry | None:
        return RETRY

    async def run(self, context: StepContext) -> Outcome:
        memory = await self._memory(context)
        try:
            return await self._opened(context, memory)
        except (ExpressionError, NodeError) as error:
            # What cannot be had is a source that cannot be read: so it is the join that fails, and has arcs.
            failed = [f"`loop.in` cannot be had: {error}", "PLAYBOOK_LOOP"]
            return FanOut(Source(lazy={_FAILED: failed}))

    async def _opened(self, context: StepContext, memory: Memory) -> FanOut:
        value = await collection_of(context, self.steps, self.program.loop, memory)
        if self.max_shards:
            # To share the elements out, they have to be at hand.
            value = await loaded(context, value)
        policy = Policy(tolerated=0 if self.fail_fast else None)
        parts = chunks(value, self.max_shards) if self.max_shards else None
        source = source_of(value)
        if source.lazy is not None or (self.program.loop.key is None and parts is None):
            return FanOut(source, policy, window=self._window(source))
        keyed = [part.elements()[0] for part in parts] if parts else elements(value)
        # The keys are as much as the elements: they are stored together.
        source = Source(items=msgspec.to_builtins(parts) if parts else list(keyed))
        return FanOut(source, policy, window=self._window(source), keys=self._keys(keyed, memory))

    def _window(self, source: Source) -> int:
        """How many shards may be in flight; 0, without a limit, if they are few."""
        return self.window or (IN_FLIGHT if len(source) > IN_FLIGHT else 0)

    async def read(
        self, context: StepContext, source: Mapping[str, Any], position: Any, index: int, wanted: int
    ) -> Portion:
        if _FAILED in source:
            raise NodeError(*source[_FAILED])
        portion = await read_portion(source, context, position, wanted)
        return msgspec.structs.replace(portion, keys=self._keys(portion.items, await self._memory(context)))

    async def _memory(self, context: StepContext) -> Memory:
        token = token_of(context)
        names = {"ctx": token.ctx, "vars": dict(self.program.vars), "args": token.args_of(context)}
        branch = branch_of(context, self.steps)
        key = self.program.loop.key
        return Memory(await branch.loading(key.names) if key else branch, names)

    def _keys(self, items: Sequence[Any], memory: Memory) -> list[str] | None:
        loop: Loop = self.program.loop
        if loop.key is None:
            return None
        found = (loop.key.resolve(memory.within(iter={loop.iterator: item})) for item in items)
        return [short_key(to_text(key)) for key in found]
