"""What the history asks of a database: plain SQL, and each write one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from rune.backends import sqlite

__all__ = ["Database", "Dialect", "Row", "Statement", "as_dict", "open_database"]

Dialect = Literal["sqlite", "postgres"]


class Row(Protocol):
    """One row of an answer, by the names of its columns."""

    def __getitem__(self, column: str, /) -> Any: ...
    def keys(self) -> Any:
        """The names of the columns."""


def as_dict(row: Row) -> dict[str, Any]:
    """A row as a dictionary."""
    return {column: row[column] for column in row.keys()}  # noqa: SIM118 - a row is no mapping


class Statement(NamedTuple):
    """What to carry out, once for each row of arguments, in order; a plain `(sql, rows)` does as well."""

    sql: str
    rows: Sequence[Sequence[Any]] = ((),)


class Database(Protocol):
    """SQL on SQLite or PostgreSQL; parameters are `$1`, `$2` … in both.

    Every call raises InfrastructureError while the database is out of reach; nothing of that write was done,
    as far as anybody can know, so a write that may be repeated is best made so that it can be.
    ConflictError says that a constraint refused a write.
    """

    @property
    def dialect(self) -> Dialect:
        """Which database this is, for the few places where it matters."""

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """The rows a query finds in what is committed; it only reads."""

    async def fetch_one(self, sql: str, *args: Any) -> Row | None:
        """The first row a query finds, if any."""

    async def write(self, *statements: tuple[str, Sequence[Sequence[Any]]]) -> list[list[Row]]:
        """Carry out statements in one transaction; what each returned, for all its rows of arguments."""


@asynccontextmanager
async def open_database(where: str | sqlite.Database) -> AsyncIterator[Database]:
    """The database at a `postgresql://` or `sqlite:///` address or a path, or in an open SQLite file."""
    if not isinstance(where, str):
        from rune.backends.sqlite.tabular import SqliteTables

        async with SqliteTables.over(where) as tables:
            yield tables
    elif where.startswith(("postgres://", "postgresql://")):
        from rune.backends.postgres import open_postgres

        async with open_postgres(where) as postgres:
            yield postgres
    else:
        from rune.backends.sqlite import Database as File
        from rune.backends.sqlite.tabular import SqliteTables

        file = File(where.removeprefix("sqlite:///") if where.startswith("sqlite:///") else where, "normal")
        try:
            async with SqliteTables.over(file) as tables:
                yield tables
        finally:
            await file.close()
