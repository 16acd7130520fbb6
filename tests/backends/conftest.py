"""Every port test runs on every backend; State in Redis goes with the Broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rune.backends.memory import MemoryBroker, MemoryState
from rune.backends.sqlite import open_sqlite
from rune.core.ports import Broker, State


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Backend(NamedTuple):
    """What is under test."""

    broker: Broker
    state: State
    clock: Clock


Opener = Callable[[Path, Clock], AbstractAsyncContextManager[tuple[Broker, State]]]


@asynccontextmanager
async def in_memory(directory: Path, clock: Clock) -> AsyncIterator[tuple[Broker, State]]:
    yield MemoryBroker(clock), MemoryState(clock)


@asynccontextmanager
async def in_redis(clock: Clock, *, cluster: bool = False) -> AsyncIterator[tuple[Broker, State]]:
    # Only here, so that the other backends can be tested without what Redis needs.
    from rune.backends.redis import open_redis
    from tests.servers.redis import shared_redis

    server = shared_redis(cluster=cluster)
    server.flush()
    url = f"redis+cluster://127.0.0.1:{server.port}" if cluster else server.url
    async with open_redis(url, clock=clock) as state:
        yield MemoryBroker(clock), state


BACKENDS: dict[str, Opener] = {
    "memory": in_memory,
    "sqlite": lambda directory, clock: open_sqlite(str(directory / "rune.db"), clock=clock),
    "sqlite-full": lambda directory, clock: open_sqlite(
        str(directory / "rune.db"), synchronous="full", clock=clock
    ),
    "redis": lambda directory, clock: in_redis(clock),
    "redis-cluster": lambda directory, clock: in_redis(clock, cluster=True),
}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Backend]:
    async with BACKENDS[request.param](tmp_path, clock) as (broker, state):
        yield Backend(broker, state, clock)


@pytest.fixture
def state(backend: Backend) -> State:
    return backend.state


@pytest.fixture
def broker(backend: Backend) -> Broker:
    return backend.broker
