"""Workers and schedulers as processes of their own, on a virtual host and a Redis database of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.distributed.client import Client
from tests.servers.process import Process
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import RedisServer

__all__ = ["Fleet", "Rune", "fleet"]

ROOT = Path(__file__).parents[2]


class Rune(Process):
    """A `rune worker` or a `rune scheduler`."""

    def __init__(self, directory: Path, program: Sequence[str], *arguments: str, **environ: str) -> None:
        directory.mkdir()
        kept = {name: text for name, text in os.environ.items() if not name.startswith("RUNE_")}
        super().__init__(
            [sys.executable, "-m", *program, *arguments],
            directory,
            lambda: " ready" in self.log,
            environ={**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), **environ},
        )

    @property
    def child(self) -> subprocess.Popen[bytes]:
        assert self._child is not None
        return self._child

    def ended(self, seconds: float = 15) -> int:
        """Its exit code, once it has ended by itself."""
        return self.child.wait(seconds)


class Fleet:
    """What a test has: its servers, its processes, and a client that knows nothing of Rune."""

    def __init__(self, rabbit: RabbitMQ, vhost: str, redis: RedisServer, db: int, directory: Path) -> None:
        self.rabbit, self.redis, self.vhost = rabbit, redis, vhost
        self.broker_url = rabbit.url(vhost)
        self.state_url = f"{redis.url}/{db}"
        self.db = db
        self._directory = directory
        self.processes: list[Rune] = []
        self._clients: list[Client] = []

    def launch(self, role: str, *arguments: str, program: Sequence[str] = ("rune",), **environ: str) -> Rune:
        """Start a worker or a scheduler, without waiting; the program is `rune`, or one that acts as it."""
        where = self._directory / f"{role}{len(self.processes)}"
        servers = ("--broker", self.broker_url, "--state", self.state_url)
        process = Rune(where, program, role, *servers, *arguments, **environ)
        self.processes.append(process)
        process.launch()
        return process

    def worker(self, *arguments: str, dies: str = "", **environ: str) -> Rune:
        """Start a worker; one that `dies` kills itself there."""
        return self._start("worker", *arguments, dies=dies, **environ)

    def scheduler(self, *arguments: str, dies: str = "", **environ: str) -> Rune:
        """Start a scheduler; as above."""
        return self._start("scheduler", *arguments, dies=dies, **environ)

    def _start(self, role: str, *arguments: str, dies: str, **environ: str) -> Rune:
        program = ("tests.distributed.mortal", dies) if dies else ("rune",)
        process = self.launch(role, *arguments, program=program, **environ)
        process.await_ready()
        return process

    def client(self) -> Client:
        """A client; there has to have been a worker, which declares the queues."""
        self._clients.append(Client(self.broker_url))
        return self._clients[-1]

    def close(self) -> None:
        """End what still runs."""
        for client in self._clients:
            client.close()
        for process in self.processes:
            process.kill()

    # --- looking into Redis ---

    def left(self, execution: str, named: Collection[str] = ()) -> list[str]:
        """An execution's keys and timers, but for its tombstone and the values `named` by their hashes."""
        prefix = f"exec:{{{execution}}}:"
        found = self.redis.call_in(self.db, "KEYS", f"{prefix}*")
        rest = {key.decode().removeprefix(prefix) for key in found}
        if self.redis.call_in(self.db, "HKEYS", f"{prefix}x") == [b"buried"]:
            rest.discard("x")
        if {hash.decode() for hash in self.redis.call_in(self.db, "HKEYS", f"{prefix}v")} <= {*named}:
            rest.discard("v")
        for index in ("{rune}:due", "{rune}:claimed"):
            timers = self.redis.call_in(self.db, "ZRANGE", index, 0, -1)
            rest |= {name.decode() for name in timers if name.startswith(f"{execution}/".encode())}
        return sorted(rest)

    def is_buried(self, execution: str, named: Collection[str] = ()) -> None:
        """Wait until nothing is left of an execution but its tombstone and what its completion names."""
        limit = time.monotonic() + 10
        while left := self.left(execution, named):
            assert time.monotonic() < limit, f"left of {execution}: {left}"
            time.sleep(0.05)


@contextmanager
def fleet(rabbit: RabbitMQ, redis: RedisServer, db: int, directory: Path) -> Iterator[Fleet]:
    """A fleet without any processes yet."""
    redis.call_in(db, "FLUSHDB")
    vhost = rabbit.add_vhost()
    made = Fleet(rabbit, vhost, redis, db, directory)
    try:
        yield made
    finally:
        made.close()
        rabbit.delete_vhost(vhost)
