"""SQL over a pool of connections, each write one transaction."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, TypeVar

import asyncpg

from rune.core.errors import ConflictError, InfrastructureError, RuneError

__all__ = ["PostgresDatabase", "open_postgres"]

T = TypeVar("T")

_CONNECTIONS = 10
_PATIENCE = 10.0
"""Seconds a call waits for a connection."""
_TRIES = 20
"""Of a write that collides with others."""
_REST = 0.1
"""Seconds at most between them."""

_Connection: TypeAlias = Any
"""A connection of the pool; its library tells no types."""

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.CannotConnectNowError,
)
_COLLISION = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


@asynccontextmanager
async def open_postgres(
    url: str, *, connections: int = _CONNECTIONS, patience: float = _PATIENCE
) -> AsyncIterator[PostgresDatabase]:
    """Open the database at `url`; InfrastructureError if it cannot be reached."""
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=connections,
            timeout=patience,
            server_settings={"jit": "off"},
            reset=_nothing_to_reset,
        )
    except (*_AWAY, asyncpg.PostgresError, ValueError) as error:
        raise _away(error) from error
    try:
        yield PostgresDatabase(pool, patience)
    finally:
        try:
            await asyncio.wait_for(pool.close(), patience)
        except (*_AWAY, asyncpg.PostgresError):
            pool.terminate()


class PostgresDatabase:
    """A database on a PostgreSQL server; parameters are `$1`, `$2` …"""

    dialect: Literal["postgres"] = "postgres"

    def __init__(self, pool: asyncpg.Pool, patience: float = _PATIENCE) -> None:
        self._pool = pool
        self._patience = patience

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        """The rows a query finds in what is committed."""
        return await self._with_connection(lambda connection: connection.fetch(sql, *args))

    async def fetch_one(self, sql: str, *args: Any) -> Any:
        """The first row a query finds, if any."""
        return await self._with_connection(lambda connection: connection.fetchrow(sql, *args))

    async def write(self, *statements: tuple[str, Sequence[Sequence[Any]]]) -> list[list[Any]]:
        """Carry out statements in one transaction; what each returned."""

        async def carry_out(connection: _Connection) -> list[list[Any]]:
            if len(statements) == 1:
                return [await _executed(connection, *statements[0])]
            async with connection.transaction():
                return [await _executed(connection, sql, rows) for sql, rows in statements]

        for _ in range(_TRIES):
            try:
                return await self._with_connection(carry_out)
            except _COLLISION as error:
                # The whole transaction was undone, and is all we have been told: it can be tried again.
                collision = error
                await asyncio.sleep(random.uniform(0, _REST))
        raise InfrastructureError(f"PostgreSQL is too busy: {collision}") from collision

    async def _with_connection(self, work: Callable[[_Connection], Awaitable[T]]) -> T:
        try:
            async with self._pool.acquire(timeout=self._patience) as connection:
                return await work(connection)
        except asyncpg.IntegrityConstraintViolationError as error:
            raise ConflictError(str(error)) from error
        except _COLLISION:
            raise
        except _AWAY as error:
            raise _away(error) from error
        except (asyncpg.PostgresError, asyncpg.DataError) as error:
            raise RuneError(f"the database does not understand this: {error}") from error


async def _executed(connection: _Connection, sql: str, rows: Sequence[Sequence[Any]]) -> list[Any]:
    if len(rows) == 1:
        return list(await connection.fetch(sql, *rows[0]))
    if not rows:
        return []
    if "RETURNING" in sql:
        return list(await connection.fetchmany(sql, rows))
    await connection.executemany(sql, rows)
    return []


async def _nothing_to_reset(connection: Any) -> None:
    """Nobody here leaves a trace in a session, so that what is given back needs no round trip to be clean."""


def _away(error: Exception) -> InfrastructureError:
    return InfrastructureError(f"PostgreSQL is out of reach: {str(error) or type(error).__name__}")
