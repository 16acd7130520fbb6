"""A private PostgreSQL: on a free port, in a directory of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import asyncpg

from tests.servers.process import Process, binary, free_port

__all__ = ["PostgresServer", "postgres_server", "shared_postgres"]

_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "5s",
    "deadlock_timeout": "20ms",
}


class PostgresServer(Process):
    """A postgres with no password; it refuses to run as root, so it then runs as somebody else."""

    def __init__(self, directory: Path, **options: str) -> None:
        self.port = free_port()
        self.directory = directory
        self._data = directory / "data"
        self._names = count()
        settings = [f"{key}={value}" for key, value in {**_OPTIONS, **options}.items()]
        command = [
            *_as_somebody(),
            *(_program("postgres"), "-D", str(self._data), "-p", str(self.port)),
            *(part for setting in settings for part in ("-c", setting)),
        ]
        super().__init__(command, directory, self._is_ready)

    def create(self) -> None:
        """Make its directory of data."""
        if os.geteuid() == 0:
            shutil.chown(self.directory, _somebody())
        subprocess.run(
            [
                *(*_as_somebody(), _program("initdb"), "-D", str(self._data), "-U", "rune", "-A", "trust"),
                *("--no-sync", "-E", "UTF8", "--locale=C"),
            ],
            check=True,
            cwd=self.directory,
            stdout=subprocess.DEVNULL,
        )

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases."""
        return f"postgresql://rune@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of a new and empty one."""
        name = f"test_{os.getpid()}_{next(self._names)}"
        self._execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop one, whoever is still connected."""
        self._execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def stop(self) -> None:
        """Ask it to end, whoever is still connected."""
        self._end(signal.SIGINT)

    def _execute(self, sql: str) -> None:
        # In a thread, for the caller may be in a loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._executed(sql)).result()

    async def _executed(self, sql: str) -> None:
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    def _is_ready(self) -> bool:
        try:
            self._execute("SELECT 1")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else binary(name, "postgresql")


def _as_somebody() -> list[str]:
    """How to start a program as somebody other than root, if that is who we are."""
    if os.geteuid() != 0:
        return []
    # Changing the user forgets that it is to die with us.
    return ["setpriv", "--pdeathsig=KILL", f"--reuid={_somebody()}", "--clear-groups"]


def _somebody() -> str:
    users = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


@contextmanager
def postgres_server(**options: str) -> Iterator[PostgresServer]:
    """A running PostgreSQL, by default one that does not care for the machine's death."""
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="rune-postgres-", dir=fast))
    directory.chmod(0o755)
    server = PostgresServer(directory, **options)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


@cache
def shared_postgres() -> PostgresServer:
    """A PostgreSQL for all tests of this process, each with a database of its own."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres_server())
