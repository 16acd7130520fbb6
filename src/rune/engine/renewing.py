"""A lease that is kept for as long as its step runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["kept_alive"]

T = TypeVar("T")


async def kept_alive(work: Awaitable[T], renew: Callable[[], Awaitable[object]], every: float) -> T:
    """Do the work, and renew every so many seconds; if that fails, the work is stopped, and it is told."""
    renewal = _Renewal(renew, every)
    try:
        return await work
    except asyncio.CancelledError:
        if renewal.failure is None:
            raise
        renewal.working.uncancel()
        raise renewal.failure from None
    finally:
        renewal.stop()


class _Renewal:
    """Begins with a timer and not with a task: most steps end before it is due."""

    def __init__(self, renew: Callable[[], Awaitable[object]], every: float) -> None:
        working = asyncio.current_task()
        assert working is not None
        self.working = working
        self.failure: BaseException | None = None
        self._renew = renew
        self._every = every
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every, self._begin)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._go_on())
        self._task.add_done_callback(self._ended)

    async def _go_on(self) -> None:
        while True:
            await self._renew()
            await asyncio.sleep(self._every)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.failure = task.exception()
            self.working.cancel()
