"""Publishes the Tasks of timers whose time has come."""

from __future__ import annotations

from collections.abc import Callable

from rune.core.messages import decode_task
from rune.core.ports import Broker, State

__all__ = ["Scheduler"]

_BATCH = 1000
_LEASE = 30.0
"""Seconds after which timers that a dead scheduler had claimed are found again."""


class Scheduler:
    """Sleeps until the next timer is due; any number of schedulers may compete."""

    def __init__(self, state: State, broker: Broker, clock: Callable[[], float]) -> None:
        self._state = state
        self._broker = broker
        self._clock = clock

    async def run(self) -> None:
        """Publish due timers for ever."""
        while True:
            if await self.tick():
                continue
            due = await self._state.next_due()
            # The clock may be set while we sleep: look at it once a minute.
            wait = 60.0 if due is None else min(60.0, due - self._clock())
            if wait > 0:
                await self._state.armed(wait)

    async def tick(self) -> int:
        """Claim what is due, publish it, and only then forget it."""
        now = self._clock()
        timers = await self._state.claim(now, _BATCH, now + _LEASE)
        if timers:
            await self._broker.publish([decode_task(timer.task) for timer in timers])
            await self._state.discharge(timers)
        return len(timers)
