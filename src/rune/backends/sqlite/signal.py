"""Wakes whoever waits for something to happen."""

from __future__ import annotations

import asyncio

__all__ = ["Signal"]


class Signal:
    """An event that is over as soon as everybody who waited has heard of it."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until it is next sent."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def send(self) -> None:
        """Wake everybody."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
