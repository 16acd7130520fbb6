"""One private Redis for all these tests, emptied before each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rune.backends.redis import RedisState, open_redis
from tests.backends.conftest import Clock
from tests.servers.redis import RedisServer, shared_redis


@pytest.fixture
def server() -> RedisServer:
    """A Redis, empty."""
    shared = shared_redis()
    shared.flush()
    return shared


@pytest.fixture
async def state(server: RedisServer, clock: Clock) -> AsyncIterator[RedisState]:
    """State in it."""
    async with open_redis(server.url, clock=clock) as opened:
        yield opened
