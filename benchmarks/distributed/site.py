"""Where it runs: a private RabbitMQ and a private Redis, with workers and schedulers as processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.servers.process import Process, free_port
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import RedisServer, redis_server

__all__ = ["Place", "Site", "site"]

_ROOT = str(Path(__file__).parents[2])


class Place:
    """A virtual host and a database of their own, with one worker."""

    def __init__(
        self,
        rabbit: RabbitMQ,
        vhost: str,
        state_url: str,
        processes: Mapping[str, int],
        metrics: int,
    ) -> None:
        self.broker_url, self.state_url = rabbit.url(vhost), state_url
        self.processes = processes
        """Who works here."""
        self.metrics = metrics
        """The port at which the scheduler tells what it did, if there is one."""
        self._rabbit = rabbit
        self._vhost = vhost

    def purge(self) -> None:
        """Empty the queues, where the statuses are that nobody reads."""
        self._rabbit.purge(self._vhost)


class Site:
    """The servers, and what was started on them."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self._rabbit = stack.enter_context(RabbitMQ())
        self._redis = self.redis()
        self._places = 0

    def redis(self) -> RedisServer:
        """A Redis of its own."""
        return self._stack.enter_context(redis_server())

    def place(self, *, scheduler: bool = False, **environ: str) -> Place:
        """A place with a worker, and perhaps a scheduler."""
        vhost, state_url = self._rabbit.add_vhost(), f"{self._redis.url}/{self._places}"
        self._places += 1
        servers = ("--broker", self._rabbit.url(vhost), "--state", state_url)
        metrics = free_port() if scheduler else 0
        if scheduler:
            port = ("--metrics-port", str(metrics))
            self._start(f"scheduler{self._places}", "rune", "scheduler", *servers, *port)
        worker = self._start(f"worker{self._places}", "rune", "worker", *servers, **environ)
        known = {"RabbitMQ": _pid(self._rabbit), "Redis": _pid(self._redis)}
        return Place(self._rabbit, vhost, state_url, {"worker": worker, **known}, metrics)

    @property
    def bare_processes(self) -> dict[str, int]:
        """Who works where there is no worker."""
        return {"client": os.getpid(), "RabbitMQ": _pid(self._rabbit)}

    def vhost(self) -> str:
        """The address of a virtual host with nobody in it."""
        return self._rabbit.url(self._rabbit.add_vhost())

    def echo(self) -> str:
        """The same, but that a bare client answers every Task there with a completion."""
        url = self.vhost()
        self._start("echo", "benchmarks.distributed.bare", url)
        return url

    def _start(self, name: str, *command: str, **environ: str) -> int:
        """Start a module in a process of its own, and wait until it says that it is ready; its id."""
        directory = self._directory / name
        directory.mkdir()
        kept = {key: text for key, text in os.environ.items() if not key.startswith("RUNE_")}
        process = Process(
            [sys.executable, "-m", *command],
            directory,
            lambda: " ready" in process.log,
            # As with the bare loop, all that is under way is in the client's hands.
            environ={**kept, "PYTHONPATH": _ROOT, "RUNE_PREFETCH": "256", **environ},
        )
        self._stack.callback(process.kill)
        process.start()
        return _pid(process)


@contextmanager
def site() -> Iterator[Site]:
    """The servers, started; they end with us."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rune-bench-"))
        yield Site(stack, Path(directory))


def _pid(server: Process) -> int:
    assert server._child is not None
    return server._child.pid
