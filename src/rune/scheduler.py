"""Publishes the Tasks of timers whose time has come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rune.core.errors import InfrastructureError
from rune.core.messages import decode_task
from rune.core.ports import Broker, State

__all__ = ["Scheduler"]

_log = logging.getLogger("rune.scheduler")

_BATCH = 1000
_REST = 1.0
"""Seconds after which one that endures tries again."""


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
        self._stopping = asyncio.Event()

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
        if timers:
            await self._broker.publish([decode_task(timer.task) for timer in timers])
            await self._state.discharge(timers)
        return len(timers)
