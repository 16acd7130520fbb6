"""What the master does to executions in the same way wherever they run: through State, Broker and engine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from rune.core.context import Context
from rune.core.holding import Holding, Standing
from rune.core.messages import Task, decode_task, encode
from rune.core.operations import Timer
from rune.core.ports import Broker, DeadLetter, State
from rune.core.workflow import Workflow
from rune.engine import Engine
from rune.engine.seeding import Seeds

__all__ = ["Steering"]

_CANCEL = 10
"""The priority of a Task that cancels."""


class Steering:
    """Starts, stops and looks at executions of one engine."""

    def __init__(self, engine: Engine, state: State, broker: Broker) -> None:
        self._engine = engine
        self._state = state
        self._broker = broker

    # --- executions ---

    async def start(
        self,
        flow: Workflow,
        execution: str,
        values: Mapping[str, Raw],
        *,
        priority: int = 0,
        root: str = "",
        seeds: Seeds = (),
    ) -> None:
        """See `Runtime.start`.

        The definition goes into State, not with the Tasks: so State knows an execution from its start to the
        end of its tombstone, and one that it does not know is lost.
        """
        await self._engine.start(flow, execution, values, priority=priority, root=root, seeds=seeds)

    async def cancel(
        self, execution: str, reason: str, *, workflow: str = "-", started_at: float = 0.0
    ) -> None:
        """See `Runtime.cancel`."""
        task = Task(
            workflow_id=workflow,
            execution_id=execution,
            started_at=started_at,
            current_node="",
            accumulated_context={},
            phase="cancel",
            details=Raw(msgspec.json.encode(reason)),
            priority=_CANCEL,
        )
        await self._broker.publish([task])

    async def pause(self, execution: str) -> bool:
        """See `Runtime.pause`."""
        return await self._state.pause(execution)

    async def resume(self, execution: str) -> bool:
        """See `Runtime.resume`."""
        parked = await self._state.unpause(execution)
        await self._broker.publish([decode_task(task) for task in parked])
        await self._state.unparked(execution)
        return (await self.standings([execution])).get(execution) == "alive"

    async def wake(self, execution: str, step: str, payload: Raw) -> bool:
        """See `Runtime.wake`."""
        timer = await self._state.timer(execution, step)
        if timer is None or timer.due is not None:
            return False
        task = decode_task(timer.task)
        if task.phase != "wake":
            # A call rests as well: the end of what it has called is what wakes it.
            return False
        name = f"${task.current_node}"
        known = Context(task.accumulated_context, refs=task.refs, writers=task.writers)
        layers = await self._engine.values.load(execution, known.needs(frozenset({name})))
        output = msgspec.json.decode(known.raw(name, layers.__getitem__), type=dict[str, Raw])
        woken = known.having({name: Raw(msgspec.json.encode({**output, "payload": payload}))})
        context = await self._engine.values.fold(execution, woken)
        changed = msgspec.structs.replace(
            task,
            accumulated_context=context.inline(),
            refs=context.refs,
            weight=context.size,
            # Nobody else's Task is the same, so that only one of two callers is told that it woke the step.
            details=Raw(msgspec.json.encode(os.urandom(8).hex())),
        )
        return await self._state.wake(execution, step, encode(changed), time.time())

    # --- looking ---

    async def holding(self, execution: str, limit: int = 100) -> Holding | None:
        """See `Runtime.holding`."""
        return await self._state.holding(execution, limit)

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        """See `Runtime.standings`."""
        return await self._state.standings(executions)

    async def values(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """See `Runtime.values`."""
        return await self._state.get(execution, hashes)

    async def timers(self, limit: int = 100) -> list[Timer]:
        """See `Runtime.timers`."""
        return await self._state.timers(limit)

    # --- dead letters ---

    async def letters(self, after: str = "", limit: int = 100) -> list[DeadLetter]:
        """See `Runtime.letters`."""
        return await self._broker.letters(after, limit)

    async def letter(self, id: str) -> DeadLetter | None:
        """See `Runtime.letter`."""
        return await self._broker.letter(id)

    async def redrive_letter(self, id: str) -> bool:
        """See `Runtime.redrive_letter`."""
        return await self._broker.redrive(id)

    async def drop_letter(self, id: str) -> bool:
        """See `Runtime.drop_letter`."""
        return await self._broker.drop(id)
