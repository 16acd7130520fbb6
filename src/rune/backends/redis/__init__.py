"""State in Redis, for any number of workers and schedulers: one server, sentinels or a cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rune.backends.redis.address import parse_url
from rune.backends.redis.client import Client
from rune.backends.redis.state import RedisState

__all__ = ["RedisState", "open_redis"]


@asynccontextmanager
async def open_redis(
    url: str, *, patience: float | None = None, clock: Callable[[], float] = time.time
) -> AsyncIterator[RedisState]:
    """Open the Redis at `url`, and wait until it answers.

    A call that finds Redis out of reach waits until it is back; with `patience`, at most so many seconds,
    after which it raises InfrastructureError.
    """
    state = RedisState(Client(parse_url(url), patience), clock)
    try:
        await state.check()
        yield state
    finally:
        await state.close()
