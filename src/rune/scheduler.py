"""Publishes the Tasks of timers whose time has come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rune.core.errors import InfrastructureError, MessageError
from rune.core.histogram import Histogram
from rune.core.messages import Task, decode_task
from rune.core.operations import Timer
from rune.core.ports import Broker, State

__all__ = ["Scheduler"]

_log = logging.getLogger("rune.scheduler")

_BATCH = 1000
_REST = 1.0
"""Seconds after which one that endures tries again."""
_LATENESS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600, 3600)


class Scheduler:
    """Sleeps until the next timer is due; any number of schedulers may compete.

    What one that died had claimed is found again after `lease` seconds.
    """

    def __init__(
        self, state: State, broker: Broker, clock: Callable[[], float], *, lease: float = 30.0
    ) -> None:
        self._state = state
        self._broker = broker
        self._clock = clock
        self._lease = lease
        self.claimed = self.published = 0
        """Timers that we took, and those whose Tasks we published."""
        self.lateness = Histogram(_LATENESS)
        """Seconds from when a timer was due to when its Task was published."""
        self._stopping = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether we were told to stop."""
        return self._stopping.is_set()

    async def run(self, *, enduring: bool = False) -> None:
        """Publish due timers until stopped; an `enduring` one waits for State and Broker to come back."""
        while not self._stopping.is_set():
            try:
                if not await self.tick():
                    await self._rest()
            except InfrastructureError as error:
                if not enduring:
                    raise
                _log.warning("%s; trying again", error)
                await asyncio.sleep(_REST)

    def stop(self) -> None:
        """Claim no more; `run` returns when what is claimed has been published."""
        self._stopping.set()

    async def _rest(self) -> None:
        """Sleep until a timer may be due, or until stopped."""
        due = await self._state.next_due()
        # The clock may be set while we sleep: look at it once a minute.
        wait = 60.0 if due is None else min(60.0, due - self._clock())
        if wait <= 0:
            return
        either = [
            asyncio.ensure_future(waiting) for waiting in (self._state.armed(wait), self._stopping.wait())
        ]
        try:
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in either:
                each.cancel()

    async def tick(self) -> int:
        """Claim what is due, publish it, and only then forget it."""
        now = self._clock()
        timers = await self._state.claim(now, _BATCH, now + self._lease)
        self.claimed += len(timers)
        pools: dict[str, list[tuple[Timer, Task]]] = {}
        for timer in timers:
            try:
                task = decode_task(timer.task)
            except MessageError as nonsense:
                # It stays claimed, and is heard of again: the others must not wait for it.
                _log.error("the timer %s of %s makes no sense: %s", timer.id, timer.execution, nonsense)
                continue
            pools.setdefault(task.pool, []).append((timer, task))
        # A pool that cannot be reached must not keep the others waiting.
        ends = await asyncio.gather(*map(self._publish, pools.values()), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return len(timers)

    async def _publish(self, due: list[tuple[Timer, Task]]) -> None:
        await self._broker.publish([task for _, task in due])
        self.published += len(due)
        now = self._clock()
        for timer, _ in due:
            self.lateness.add(now - timer.was_due)
        await self._state.discharge([timer for timer, _ in due])
