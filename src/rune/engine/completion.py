"""The end of an execution: its completion message, then its burial."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from rune.core.context import Context, Ref
from rune.core.errors import ErrorInfo
from rune.core.messages import CompletionMessage, Task
from rune.core.operations import Ending
from rune.core.playbook.references import hashes_in
from rune.core.ports import Broker, State
from rune.core.step import Snapshot
from rune.engine.calling import Calls
from rune.engine.statuses import iso
from rune.engine.values import INLINE, Values, expand

__all__ = ["Completions"]

_AT_A_TIME = 16
"""Stored values that are looked through together."""
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
        await self._broker.publish(await self._calls.orphans(task), [completion])
        await self._calls.tell(task, completion)
        keep = await self._named(task.execution_id, context)
        await self._state.bury(task.execution_id, keep, ending.at + self._retention)

    async def _named(self, execution: str, context: Context) -> set[str]:
        """The stored values that the final context names, and those that they name in turn."""
        named = {ref.hash for ref in context.refs}
        fresh = named | {hash for raw in context.inline().values() for hash in hashes_in(bytes(raw))}
        while fresh:
            named |= fresh
            todo, fresh = list(fresh), set()
            for at in range(0, len(todo), _AT_A_TIME):
                found = await self._state.get(execution, todo[at : at + _AT_A_TIME])
                fresh |= {hash for data in found.values() for hash in hashes_in(data)}
            fresh -= named
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
