"""Every port test runs on every backend that runs in Python."""

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


BACKENDS: dict[str, Opener] = {
    "memory": in_memory,
    "sqlite": lambda directory, clock: open_sqlite(str(directory / "rune.db"), clock=clock),
    "sqlite-full": lambda directory, clock: open_sqlite(
        str(directory / "rune.db"), synchronous="full", clock=clock
    ),
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
