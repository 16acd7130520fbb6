"""What the engine is tested on: a new backend is one class here and one line in `INSIDE`."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from rune.backends.memory import MemoryBroker, MemoryState
from rune.backends.rabbitmq import open_rabbitmq
from rune.backends.redis import open_redis
from rune.backends.sqlite import open_sqlite
from rune.core.ports import Broker, State
from tests.conformance.harness import Clock, Rig
from tests.conformance.inside import Inside, Openable
from tests.conformance.outside import Outside
from tests.servers.rabbitmq import shared_rabbitmq
from tests.servers.redis import shared_redis

__all__ = ["BACKENDS", "FLEET", "INSIDE", "rig_inside", "rig_on"]


class Memory:
    """Everything in this process: a crash of the engine leaves it as it is."""

    broker: MemoryBroker
    state: MemoryState

    async def open(self, clock: Clock) -> None:
        self.broker = MemoryBroker()
        self.state = MemoryState(clock)

    async def reopen(self, clock: Clock) -> bool:
        return False

    async def close(self) -> None:
        pass

    def left(self, execution: str) -> dict[str, Any]:
        kept = self.state.rows.executions[execution]
        kinds = ("scopes", "steps", "barriers", "merges", "arrivals", "timers", "parked", "values")
        return {kind: getattr(kept, kind) for kind in kinds}

    def queue(self) -> int:
        return len(self.broker._queue) + len(self.broker._taken)


class Sqlite:
    """One file; after a crash it is opened anew."""

    broker: Broker
    state: State

    async def open(self, clock: Clock) -> None:
        fast = Path("/dev/shm")
        self._directory = tempfile.mkdtemp(prefix="rune-", dir=fast if fast.is_dir() else None)
        self._path = f"{self._directory}/rune.db"
        await self._open(clock)

    async def _open(self, clock: Clock) -> None:
        self._stack = contextlib.AsyncExitStack()
        opened = open_sqlite(self._path, clock=clock)
        self.broker, self.state = await self._stack.enter_async_context(opened)

    async def reopen(self, clock: Clock) -> bool:
        await self._stack.aclose()
        await self._open(clock)
        return True

    async def close(self) -> None:
        await self._stack.aclose()
        shutil.rmtree(self._directory)

    def left(self, execution: str) -> dict[str, Any]:
        ended = ("execution", "completion", "message", "dead_letter")
        with contextlib.closing(sqlite3.connect(self._path)) as file:
            tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows: dict[str, Any] = {
                table: file.execute(f"SELECT * FROM {table} WHERE execution = ?", (execution,)).fetchall()
                for table in tables
                if table not in ended and not table.startswith("sqlite_")
            }
            rows["values"] = [row[1] for row in rows.pop("value")]
            return rows

    def queue(self) -> int:
        with contextlib.closing(sqlite3.connect(self._path)) as file:
            return int(file.execute("SELECT count(*) FROM message").fetchone()[0])


class Redis:
    """State in Redis, the Broker in memory: a crash of the engine leaves both as they are."""

    broker: MemoryBroker
    state: State

    async def open(self, clock: Clock) -> None:
        self._server = shared_redis()
        self._server.flush()
        self.broker = MemoryBroker()
        await self._open(clock)

    async def _open(self, clock: Clock) -> None:
        self._stack = contextlib.AsyncExitStack()
        self.state = await self._stack.enter_async_context(open_redis(self._server.url, clock=clock))

    async def reopen(self, clock: Clock) -> bool:
        await self._stack.aclose()
        await self._open(clock)
        return False

    async def close(self) -> None:
        await self._stack.aclose()

    def left(self, execution: str) -> dict[str, Any]:
        return self._server.left(execution)

    def queue(self) -> int:
        return len(self.broker._queue) + len(self.broker._taken)


class Distributed:
    """RabbitMQ and Redis; after a crash both are connected to anew, and RabbitMQ delivers again."""

    broker: Broker
    state: State

    async def open(self, clock: Clock) -> None:
        self._rabbit, self._redis = shared_rabbitmq(), shared_redis()
        self._rabbit.purge()
        self._redis.flush()
        await self._open(clock)

    async def _open(self, clock: Clock) -> None:
        self._stack = contextlib.AsyncExitStack()
        self.state = await self._stack.enter_async_context(open_redis(self._redis.url, clock=clock))
        self.broker = await self._stack.enter_async_context(open_rabbitmq(self._rabbit.url()))

    async def reopen(self, clock: Clock) -> bool:
        await self._stack.aclose()
        await self._open(clock)
        return True

    async def close(self) -> None:
        await self._stack.aclose()

    def left(self, execution: str) -> dict[str, Any]:
        return self._redis.left(execution)

    def queue(self) -> int:
        return sum(
            self._rabbit.settled(queue) for queue in ("workflow.execution", "workflow.timeout.process")
        )


INSIDE: dict[str, type[Openable]] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "redis": Redis,
    "distributed": Distributed,
}
"""With these the engine runs in the test's own process, which may crash between any two calls of a port."""
FLEET = "fleet"
"""RabbitMQ, Redis, three workers and two schedulers, which nobody can look into, or stop at a line."""
BACKENDS = (*INSIDE, FLEET)


def rig_inside(backend: str, **manner: Any) -> Inside:
    """A rig whose engine runs in this process."""
    return Inside(INSIDE[backend](), **manner)


def rig_on(backend: str, **manner: Any) -> Rig:
    """A rig on any backend."""
    return Outside(**manner) if backend == FLEET else rig_inside(backend, **manner)
