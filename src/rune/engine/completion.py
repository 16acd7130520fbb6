"""The end of an execution: its completion message, then its burial."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from rune.core.context import Context, Ref
from rune.core.errors import ErrorInfo
from rune.core.messages import CompletionMessage, Task
from rune.core.plan import Snapshot
from rune.core.ports import Broker, Ending, State
from rune.engine.statuses import iso
from rune.engine.values import INLINE, Values, expand

__all__ = ["Completions"]

_TRAVELS = 3 * INLINE
"""Bytes of the final context that a completion message carries itself."""


class Completions:
    """Announces that an execution has ended, and forgets it."""

    def __init__(self, state: State, broker: Broker, values: Values, retention: float) -> None:
        self._state = state
        self._broker = broker
        self._values = values
        self._retention = retention

    async def announce(self, task: Task, ending: Ending) -> None:
        """Publish the completion, then bury the execution: a crash in between publishes the same again."""
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
        )
        await self._broker.publish((), [completion])
        keep = [ref.hash for ref in context.refs]
        await self._state.bury(task.execution_id, keep, ending.at + self._retention)

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
