"""A private Redis: on a free port, in a directory of its own."""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import hiredis

from tests.servers.process import Process, answers, binary, free_port

__all__ = ["Line", "RedisServer", "join_cluster", "redis_server", "sentinel", "shared_redis"]


class Line:
    """A plain connection to a Redis on this machine: one command at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 5)
        self._reader = hiredis.Reader(notEnoughData=...)

    def call(self, *command: str | bytes | int | float) -> Any:
        """The reply to a command."""
        self._socket.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
        while (reply := self._reader.gets()) is ...:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("Redis closed the connection")
            self._reader.feed(data)
        return reply

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class RedisServer(Process):
    """A redis-server, with a plain client for tests to look into it."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        self.directory = directory
        command = [
            binary("redis-server", "redis-server"),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""),
            *options,
        ]
        super().__init__(command, directory, lambda: answers(self.port) and self._loaded())

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def _loaded(self) -> bool:
        try:
            return not str(self.call("PING")).startswith("LOADING")
        except OSError:
            return False

    def call(self, *command: str | bytes | int) -> Any:
        """One command on a connection of its own."""
        return self._call([command])

    def call_in(self, db: int, *command: str | bytes | int) -> Any:
        """One command in a database."""
        return self._call([("SELECT", db), command])

    def _call(self, commands: Sequence[tuple[str | bytes | int, ...]]) -> Any:
        line = Line(self.port)
        try:
            return [line.call(*command) for command in commands][-1]
        finally:
            line.close()

    def keys(self, pattern: str = "*") -> set[str]:
        """All keys like this one."""
        return {key.decode() for key in self.call("KEYS", pattern)}

    def flush(self) -> None:
        """Empty it."""
        self.call("FLUSHALL")

    def left(self, execution: str) -> dict[str, list[str]]:
        """All that is kept of an execution besides its tombstone, by kind; stored values under `values`."""
        prefix = f"exec:{{{execution}}}:"
        kept = {key: [key] for key in self.keys(f"{prefix}*") if key not in (f"{prefix}x", f"{prefix}v")}
        for key in ("{rune}:due", "{rune}:claimed", "{rune}:live"):
            members = [member.decode() for member in self.call("ZRANGE", key, 0, -1)]
            kept[key] = [member for member in members if member.split("/")[0] == execution]
        kept["values"] = [hash.decode() for hash in self.call("HKEYS", f"{prefix}v")]
        return kept


@contextmanager
def redis_server(
    *, durable: bool = False, cluster: tuple[int, int] | None = None, options: tuple[str, ...] = ()
) -> Iterator[RedisServer]:
    """A running Redis; a `durable` one syncs before it answers, one of a `cluster` has these slots."""
    # Durable data belong on a disk that can sync; others are faster in memory.
    fast = None if durable or not Path("/dev/shm").is_dir() else "/dev/shm"
    directory = Path(tempfile.mkdtemp(prefix="rune-redis-", dir=fast))
    if durable:
        options = (*options, "--appendonly", "yes", "--appendfsync", "always")
    if cluster:
        # Else it is the port plus 10,000, which may not exist.
        options = (*options, "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    server = RedisServer(directory, *options)
    try:
        server.start()
        if cluster:
            server.call("CLUSTER", "ADDSLOTSRANGE", *cluster)
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)


def join_cluster(*servers: RedisServer) -> None:
    """Wait until these servers, which have all slots between them, are one cluster."""
    for other in servers[1:]:
        port = other.call("CONFIG", "GET", "cluster-port")[1]
        servers[0].call("CLUSTER", "MEET", "127.0.0.1", other.port, port)
    limit = time.monotonic() + 20
    while any(b"cluster_state:ok" not in server.call("CLUSTER", "INFO") for server in servers):
        if time.monotonic() > limit:
            raise RuntimeError("the servers do not become a cluster")
        time.sleep(0.02)


@cache
def shared_redis(*, cluster: bool = False) -> RedisServer:
    """A Redis, or a cluster of one, for all tests of this process that empty it before they use it."""
    stack = ExitStack()
    atexit.register(stack.close)
    server = stack.enter_context(redis_server(cluster=(0, 16383) if cluster else None))
    if cluster:
        join_cluster(server)
    return server


@contextmanager
def sentinel(server: RedisServer, service: str, *settings: str) -> Iterator[RedisServer]:
    """A sentinel that watches over a server."""
    directory = Path(tempfile.mkdtemp(prefix="rune-sentinel-"))
    lines = (f"sentinel monitor {service} 127.0.0.1 {server.port} 1", *settings)
    (directory / "sentinel.conf").write_text("\n".join(lines) + "\n")
    watcher = RedisServer(directory)
    watcher._command = [
        binary("redis-server", "redis-server"),
        str(directory / "sentinel.conf"),
        *("--sentinel", "--port", str(watcher.port), "--bind", "127.0.0.1"),
    ]
    try:
        watcher.start()
        yield watcher
    finally:
        watcher.kill()
        shutil.rmtree(directory)
