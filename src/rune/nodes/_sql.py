"""Connections to SQL databases that steps of a worker share, and what a statement gave as JSON."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from rune.core.errors import NodeError
from rune.nodes._sql_values import from_json, parsed, to_json
from rune.nodes._statements import statements

if TYPE_CHECKING:
    import asyncpg

__all__ = ["Databases", "Ran"]

_POOL = 8
"""Connections to one database, at most."""
_ROWS = 100_000
"""Rows that one statement may give."""


class Ran(msgspec.Struct, frozen=True):
    """What one statement gave."""

    status: str
    rows: list[dict[str, Any]]
    row_count: int
    columns: list[str]


class Databases:
    """Pools of PostgreSQL by address, opened when first needed; a DuckDB file is opened for each use."""

    def __init__(self) -> None:
        self._pools: dict[str, asyncpg.Pool[Any]] = {}
        self._files: dict[str, Lock] = {}

    async def postgres(
        self, credential: Mapping[str, Any], command: str, params: Sequence[Any], timeout: float
    ) -> list[Ran]:
        """Run the statements of a command in one transaction."""
        asked = _asked(command)
        async with self._connected(credential, timeout) as connection, connection.transaction():
            return [await _run(connection, statement, params, timeout) for statement in asked]

    async def select(
        self, credential: Mapping[str, Any], query: str, params: Sequence[Any], timeout: float
    ) -> Ran:
        """Run one query, which can change nothing."""
        async with self._connected(credential, timeout) as connection, connection.transaction(readonly=True):
            return await _run(connection, query, params, timeout)

    @asynccontextmanager
    async def _connected(self, credential: Mapping[str, Any], timeout: float) -> AsyncIterator[Any]:
        """A connection of the pool; what goes wrong there, as users see it."""
        import asyncpg

        try:
            pool = await self._pool(credential)
            connection = await _acquired(pool, timeout)
            try:
                yield connection
            except TimeoutError as error:
                message = f"the statement took longer than {timeout:g} s"
                raise NodeError(message, "SQL_TIMEOUT", retryable=True) from error
            finally:
                await pool.release(connection)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            code = getattr(error, "sqlstate", None) or "interface"
            passing = code[:2] in ("08", "40", "53", "57")
            raise NodeError(str(error), "SQL_ERROR", {"sqlstate": code}, retryable=passing) from error
        except (OSError, TimeoutError) as error:
            raise NodeError(
                f"PostgreSQL is out of reach: {str(error) or 'it took too long'}",
                "SQL_CONNECTION",
                retryable=True,
            ) from error

    async def _pool(self, credential: Mapping[str, Any]) -> asyncpg.Pool[Any]:
        import asyncpg

        key = msgspec.json.encode(dict(credential), order="deterministic").decode()
        pool = self._pools.get(key)
        if pool is None:
            pool = await asyncpg.create_pool(**_address(credential), min_size=0, max_size=_POOL)
            # Somebody else may have opened one while we did.
            known = self._pools.setdefault(key, pool)
            if known is not pool:
                await pool.close()
            pool = known
        return pool

    def duckdb(
        self, database: str, command: str, params: Sequence[Any], *, reading: bool = False
    ) -> list[Ran]:
        """Run the statements of a command, or one that only reads; this blocks, so it is for a thread."""
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise NodeError(
                "this needs the package duckdb: pip install 'rune-engine[duckdb]'", "SQL_DRIVER"
            ) from error
        asked = _asked(command)
        try:
            with self._opened(database, reading) as connection:
                return [_run_duckdb(connection, statement, params) for statement in asked]
        except duckdb.Error as error:
            # Another process has the file, for a while.
            passing = isinstance(error, duckdb.IOException) and "Could not set lock" in str(error)
            details = {"kind": type(error).__name__}
            raise NodeError(str(error), "SQL_ERROR", details, retryable=passing) from error

    @contextmanager
    def _opened(self, database: str, reading: bool) -> Iterator[Any]:
        """A connection to a DuckDB file; one that reads does not keep out other processes that read.

        All connections of a process to a file have to be of one kind, and none may be opened while another is
        opened or closed: whoever reads has the file to itself, or joins those who write.
        """
        import duckdb

        if not database or database.startswith(":memory:"):
            with duckdb.connect(database or ":memory:") as connection:
                yield connection
            return
        turn = self._files.setdefault(os.path.realpath(database), Lock())
        with turn:
            connection = _connected(database, reading)
            if reading:
                with connection:
                    yield connection
                return
        try:
            yield connection
        finally:
            with turn:
                connection.close()

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.close()


def _connected(database: str, reading: bool) -> Any:
    import duckdb

    if reading:
        try:
            return duckdb.connect(database, read_only=True)
        except duckdb.ConnectionException:
            # Somebody in this process writes to it.
            pass
    return duckdb.connect(database)


def _asked(command: str) -> list[str]:
    found = statements(command)
    if not found:
        raise NodeError("`command` has no statement", "SQL_EMPTY")
    return found


async def _acquired(pool: asyncpg.Pool[Any], timeout: float) -> Any:
    try:
        return await pool.acquire(timeout=timeout)
    except (ValueError, TypeError) as error:
        # Nothing of the credential itself is told: it may be in the midst of the password.
        raise NodeError(
            "the credential is no address of PostgreSQL: see if its `dsn`, or its `host` and `port`, are "
            "written right",
            "SQL_CREDENTIAL",
        ) from error


def _address(credential: Mapping[str, Any]) -> dict[str, Any]:
    dsn = credential.get("dsn") or credential.get("url")
    if isinstance(dsn, str) and dsn:
        return {"dsn": dsn}
    names = {"host": "host", "port": "port", "user": "user", "username": "user", "password": "password"}
    names |= {"database": "database", "dbname": "database", "db": "database"}
    found = {names[key]: value for key, value in credential.items() if key in names}
    if not found:
        raise NodeError(
            "the credential does not say where PostgreSQL is: it needs `dsn`, or `host`, `user`, `password` "
            "and `database`",
            "SQL_CREDENTIAL",
        )
    return found


async def _run(connection: Any, statement: str, params: Sequence[Any], timeout: float) -> Ran:
    prepared = await connection.prepare(statement, timeout=timeout)
    types = [parameter.name for parameter in prepared.get_parameters()]
    given = [from_json(value, type) for value, type in zip(params, types, strict=False)]
    records = await prepared.fetch(*given, timeout=timeout)
    attributes = prepared.get_attributes()
    kinds = [attribute.type.name for attribute in attributes]
    rows = [list(map(parsed, record.values(), kinds)) for record in records]
    return _ran(prepared.get_statusmsg(), [attribute.name for attribute in attributes], rows)


def _run_duckdb(connection: Any, statement: str, params: Sequence[Any]) -> Ran:
    cursor = connection.execute(statement, list(params) if "?" in statement or "$" in statement else [])
    columns = [column[0] for column in cursor.description or ()]
    rows = cursor.fetchmany(_ROWS + 1) if columns else []
    return _ran("OK", columns, rows)


def _ran(status: str, columns: list[str], rows: Sequence[Sequence[Any]]) -> Ran:
    if len(rows) > _ROWS:
        raise NodeError(
            f"the statement gave more than {_ROWS:,} rows; limit it, or write them to a table",
            "SQL_TOO_MANY_ROWS",
        )
    made = [dict(zip(columns, map(to_json, row), strict=True)) for row in rows]
    changed = status.rpartition(" ")[2]
    return Ran(status, made, len(made) if columns or not changed.isdecimal() else int(changed), columns)
