"""SQL for others in the same file: writes share the engine's transactions, reads have their own threads."""

from __future__ import annotations

import asyncio
import queue
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar
from urllib.request import pathname2url

from rune.backends.sqlite.database import Database
from rune.backends.sqlite.trouble import is_trouble, trouble
from rune.core.errors import ConflictError, InfrastructureError, RuneError

__all__ = ["SqliteTables"]

T = TypeVar("T")

_READERS = 4
_PATIENCE = 10.0
"""Seconds a read waits for a lock, which only recovery and closing ever take."""


class SqliteTables:
    """Tables beside the engine's own, read and written with SQL; parameters are `$1`, `$2` …"""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = ThreadPoolExecutor(_READERS, "rune-sqlite-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._readers: list[sqlite3.Connection] = []

    @classmethod
    @asynccontextmanager
    async def over(cls, database: Database) -> AsyncIterator[SqliteTables]:
        """Over a file that is open, and stays open afterwards."""
        tables = cls(database)
        try:
            yield tables
        finally:
            tables._threads.shutdown()
            for reader in tables._readers:
                reader.close()

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        """The rows a query finds in what is committed."""
        return await self._read(lambda reader: reader.execute(_numbered(sql), args).fetchall())

    async def fetch_one(self, sql: str, *args: Any) -> Any:
        """The first row a query finds, if any."""
        return await self._read(lambda reader: reader.execute(_numbered(sql), args).fetchone())

    async def write(self, *statements: tuple[str, Sequence[Sequence[Any]]]) -> list[list[Any]]:
        """Carry out statements in one transaction; what each returned."""
        return await self._database.run(partial(self._carry_out, statements))

    # --- writing -------------------------------------------------------------------------------------------

    def _carry_out(self, statements: Sequence[tuple[str, Sequence[Sequence[Any]]]]) -> list[list[Any]]:
        cursor = self._database.connection.cursor()
        cursor.row_factory = sqlite3.Row
        try:
            return [_executed(cursor, _numbered(sql), rows) for sql, rows in statements]
        except sqlite3.Error as error:
            # What is wrong with these statements must not pass for trouble with the file, which would
            # fail everybody else in the transaction, too.
            if is_trouble(error):
                raise
            raise _refused(error) from error
        finally:
            cursor.close()

    # --- reading -------------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._with_reader, work)
        except sqlite3.Error as error:
            raise (trouble(self._database.path, error) if is_trouble(error) else _refused(error)) from error
        except RuntimeError as error:
            raise InfrastructureError(f"{self._database.path} has been closed") from error

    def _with_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            reader = self._idle.get_nowait()
        except queue.Empty:
            reader = self._connect()
        try:
            return work(reader)
        finally:
            self._idle.put(reader)

    def _connect(self) -> sqlite3.Connection:
        reader = sqlite3.connect(
            f"file:{pathname2url(self._database.file)}?mode=ro",
            uri=True,
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        reader.row_factory = sqlite3.Row
        reader.execute("PRAGMA cache_size = -8000")
        self._readers.append(reader)
        return reader


@lru_cache(512)
def _numbered(sql: str) -> str:
    """SQLite takes `$1` for a name; its numbers are `?1`."""
    return re.sub(r"\$(\d+)", r"?\1", sql)


def _executed(cursor: sqlite3.Cursor, sql: str, rows: Sequence[Sequence[Any]]) -> list[sqlite3.Row]:
    if len(rows) == 1:
        return cursor.execute(sql, rows[0]).fetchall()
    if "RETURNING" not in sql:
        cursor.executemany(sql, rows)
        return []
    return [found for row in rows for found in cursor.execute(sql, row).fetchall()]


def _refused(error: sqlite3.Error) -> RuneError:
    if isinstance(error, sqlite3.IntegrityError):
        return ConflictError(str(error))
    return RuneError(f"the database does not understand this: {error}")
