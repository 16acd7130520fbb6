"""Three workers and two schedulers, each a process of its own, for all tests that want the same settings."""

from __future__ import annotations

import atexit
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import msgspec

from rune.backends.rabbitmq import pool_queue
from rune.settings import Settings
from tests.conformance.far import SharedClock
from tests.conformance.member import CLOCK, REDIS
from tests.distributed.fleet import Rune, fleet
from tests.servers.rabbitmq import shared_rabbitmq
from tests.servers.redis import RedisServer, redis_server

__all__ = ["QUEUE", "Crew", "crew_of", "dismiss"]

POOL = "crew"
QUEUE = pool_queue(POOL)
"""Where the crew's workers take their Tasks from: the rig decides when they get there."""
_PROGRAM = ("tests.conformance.member",)


class Crew:
    """Processes that all go by one clock."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rune-crew-")))
        self.clock = SharedClock.make(directory / "clock")
        self.fleet = self._stack.enter_context(fleet(shared_rabbitmq(), _redis(), 0, directory))
        self._environ = {
            **_variables(settings),
            "RUNE_MODULES": "tests.conformance.nodes",
            CLOCK: str(directory / "clock"),
            REDIS: str(self.redis.port),
        }
        self.workers = [self._worker() for _ in range(3)]
        self.schedulers = [
            self.fleet.launch("scheduler", program=_PROGRAM, **self._environ) for _ in range(2)
        ]
        for process in (*self.workers, *self.schedulers):
            process.await_ready()

    @property
    def redis(self) -> RedisServer:
        return self.fleet.redis

    def _worker(self) -> Rune:
        return self.fleet.launch(
            "worker", "--queues", POOL, "--concurrency", "16", program=_PROGRAM, **self._environ
        )

    def kill(self, worker: Rune) -> None:
        """kill -9 a worker; another takes its place."""
        self.workers.remove(worker)
        worker.kill()
        self.workers.append(self._worker())

    def counts(self, *queues: str) -> list[tuple[int, int]]:
        """How many messages wait in each of these queues, and how many are in somebody's hands."""
        return self.fleet.rabbit.counts(*queues, vhost=self.fleet.vhost)

    def purge(self) -> None:
        """Empty all queues."""
        self.fleet.rabbit.purge(self.fleet.vhost)

    def logs(self) -> str:
        """What all of them said."""
        return "".join(process.log for process in self.fleet.processes)

    def close(self) -> None:
        """End them."""
        self._stack.close()


@cache
def _redis() -> RedisServer:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(redis_server())


def _variables(settings: Settings) -> dict[str, str]:
    """The variables that mean these settings."""
    told = {}
    for field in msgspec.structs.fields(Settings):
        value = getattr(settings, field.name)
        if value != getattr(Settings(), field.name):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            told[f"RUNE_{field.name.upper()}"] = text
    return told


_present: list[Crew] = []


def crew_of(settings: Settings) -> Crew:
    """The crew that runs with these settings; there is one at a time."""
    if _present and _present[0].settings != settings:
        dismiss()
    if not _present:
        _present.append(Crew(settings))
        # After its servers have registered their ends: the last is the first.
        atexit.unregister(dismiss)
        atexit.register(dismiss)
    return _present[0]


def dismiss() -> None:
    """End the crew that is there."""
    while _present:
        _present.pop().close()
