"""Room for so many steps at a time; a step that only waits for others lends its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["Slot", "Slots"]


class Slots:
    """How many steps may run at a time."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    @asynccontextmanager
    async def taken(self, on_lent: Callable[[], None] | None = None) -> AsyncIterator[Slot]:
        """Run in a slot, as soon as there is one; `on_lent` is called when it is lent for the first time."""
        await self._free.acquire()
        slot = Slot(self._free, on_lent)
        try:
            yield slot
        finally:
            slot.leave()


class Slot:
    """The room of one step."""

    def __init__(self, free: asyncio.Semaphore, on_lent: Callable[[], None] | None) -> None:
        self._free = free
        self._on_lent = on_lent
        self._held = True
        self._lenders = 0

    def leave(self) -> None:
        """Give it back."""
        if self._held:
            self._free.release()
            self._held = False

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Let others have it meanwhile; with several such waits, until the last of them is over."""
        self._lenders += 1
        self.leave()
        if self._on_lent is not None:
            self._on_lent()
            self._on_lent = None
        queues = True
        try:
            yield
        except asyncio.CancelledError:
            # Whoever is cancelled does not queue for it: the little that is left to do runs without.
            queues = False
            raise
        finally:
            self._lenders -= 1
            if queues and not self._lenders and not self._held:
                await self._free.acquire()
                self._held = True
