"""The end of an execution: its completion message, then its burial."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import Raw

from rune.core.context import Context, Ref
from rune.core.errors import ErrorInfo
from rune.core.messages import CompletionMessage, Task
from rune.core.operations import Ending
from rune.core.ports import Broker, State
from rune.core.references import follow, hashes_in
from rune.core.step import Snapshot
from rune.engine.calling import Calls
from rune.engine.statuses import iso
from rune.engine.values import INLINE, Values, expand

__all__ = ["Completions"]

_TRAVELS = 3 * INLINE
"""Bytes of the final context that a completion message carries itself."""


class Completions:
    """Announces that an execution has ended, and forgets it."""

    def __init__(self, state: State, broker: Broker, calls: Calls, values: Values, retention: float) -> None:
        self._state = state
        self._broker = broker
        self._calls = calls
        self._values = values
        self._retention = retention

    async def announce(self, task: Task, ending: Ending) -> None:
        """Publish the completion, tell the caller, then bury: a crash in between does the same again."""
        context = await self._final(task.execution_id, ending)
        started_at = ending.started_at
        completion = CompletionMessage(
            workflow_id=task.workflow_id,
            execution_id=task.execution_id,
            status=ending.status,  # type: ignore[arg-type]
            final_context=context.inline(),
            completed_at=iso(ending.at),
            total_duration_ms=max(0, round((ending.at - started_at) * 1000)) if started_at else 0,
            error=msgspec.json.decode(ending.error, type=ErrorInfo) if ending.error else None,
            reason=ending.reason or None,
            refs=context.refs,
            caller=await self._calls.caller_of(task),
        )
        async for orphans in self._calls.orphans(task):
            await self._broker.publish(orphans)
        await self._broker.publish([], [completion])
        await self._calls.tell(task, completion)
        keep = await self._named(task.execution_id, context)
        await self._state.bury(task.execution_id, keep, ending.at + self._retention)

    async def _named(self, execution: str, context: Context) -> set[str]:
        """The stored values that the final context names, and those that they name in turn."""
        first = {ref.hash for ref in context.refs}
        for raw in context.inline().values():
            first |= hashes_in(bytes(raw))
        named: set[str] = set()
        async for hashes, _ in follow(first, partial(self._state.get, execution)):
            named.update(hashes)
        return named

    async def _final(self, execution: str, ending: Ending) -> Context:
        """The union of what the branches left, in path order."""
        values: dict[str, Raw] = {}
        refs: dict[str, Ref] = {}
        for data in ending.contexts:
            snapshot = msgspec.json.decode(data, type=Snapshot)
            for ref in snapshot.refs:
                if ref.key:
                    values.pop(ref.key, None)
                    refs[ref.key] = ref
                else:
                    values |= expand([ref], await self._values.load(execution, [ref]))
            values |= snapshot.context
        large = tuple(ref for key, ref in refs.items() if key not in values)
        context = Context(values, refs=large)
        return await self._values.fold(execution, context, _TRAVELS)
