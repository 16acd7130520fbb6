"""Deliveries that a worker handles together: plain steps as they come, and items that reach an aggregator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Sized
from time import perf_counter
from typing import Any

from rune.core.messages import Task
from rune.core.ports import Delivery
from rune.core.step import Step
from rune.engine import Engine

__all__ = ["FinishAll", "Together"]

FinishAll = Callable[[Sequence[tuple[Delivery, Sequence[Task]]]], Awaitable[None]]
"""Publishes what follows each of these deliveries, then acknowledges them."""


class Together:
    """Finishes with one call what comes in one turn of the event loop.

    What cannot be done so goes the `long_way`, one by one, where it is found out which of them it was. Of the
    others, `done` is told how many there were and how many seconds they took.
    """

    def __init__(
        self,
        engine: Engine,
        finish_all: FinishAll,
        long_way: Callable[[Delivery], Awaitable[None]],
        done: Callable[[int, float], None],
    ) -> None:
        self.running: dict[asyncio.Task[None], list[Delivery]] = {}
        """What is being finished."""
        self._engine = engine
        self._finish_all = finish_all
        self._long_way = long_way
        self._done = done
        self._passed: list[tuple[Delivery, Sequence[Task]]] = []
        """Plain steps done in this turn, with what follows them."""
        self._arrived: dict[tuple[str, str], list[tuple[Delivery, Step]]] = {}
        """Items that came in this turn, by the execution and the aggregator they reach."""

    def __len__(self) -> int:
        waiting: list[Sized] = [self._passed, *self._arrived.values(), *self.running.values()]
        return sum(len(deliveries) for deliveries in waiting)

    @property
    def pending(self) -> int:
        """Plain steps done in this turn."""
        return len(self._passed)

    def take(self, delivery: Delivery) -> bool:
        """Do a plain step here and now, or let it arrive with others; False if there is more to it."""
        idle = not self._passed and not self._arrived
        try:
            follows = self._engine.at_once(delivery)
        except Exception:  # noqa: BLE001 - the long way meets it again, and knows what to do
            return False
        if follows is None:
            return False
        if isinstance(follows, Step):
            key = follows.task.execution_id, follows.node.id
            self._arrived.setdefault(key, []).append((delivery, follows))
        else:
            self._passed.append((delivery, (follows,)))
        if idle:
            asyncio.get_running_loop().call_soon(self._finish_turn)
        return True

    def _finish_turn(self) -> None:
        passed, self._passed = self._passed, []
        arrived, self._arrived = self._arrived, {}
        if passed:
            self._begin([delivery for delivery, _ in passed], self._finish(passed))
        for group in arrived.values():
            self._begin([delivery for delivery, _ in group], self._arrive(group))

    def _begin(self, deliveries: list[Delivery], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._watch(deliveries, work))
        self.running[task] = deliveries
        task.add_done_callback(self.running.pop)

    async def _finish(self, passed: Sequence[tuple[Delivery, Sequence[Task]]]) -> None:
        await self._finish_all(passed)

    async def _arrive(self, group: Sequence[tuple[Delivery, Step]]) -> None:
        (first, _), *others = group
        tasks = await self._engine.arrive([step for _, step in group])
        await self._finish_all([(first, tasks), *((delivery, ()) for delivery, _ in others)])

    async def _watch(self, deliveries: list[Delivery], work: Awaitable[None]) -> None:
        begun = perf_counter()
        try:
            await work
        except Exception:  # noqa: BLE001 - the long way tells one error from another
            for delivery in deliveries:
                await self._long_way(delivery)
        else:
            self._done(len(deliveries), perf_counter() - begun)
