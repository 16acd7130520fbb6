"""Many rows in one statement, on either database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from rune.history.database import Database, Dialect, Row, Statement

__all__ = ["Table", "find", "guarded_update", "insert", "over", "upsert"]

_TYPES = {
    "text": "text",
    "int": "bigint",
    "float": "double precision",
    "bytes": "bytea",
}


class Table(msgspec.Struct, frozen=True):
    """A table, the types of its columns, and how many of them, from the first, are its key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: int

    @property
    def names(self) -> str:
        """Its columns, as a list."""
        return ", ".join(name for name, _ in self.columns)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that name a row."""
        return tuple(name for name, _ in self.columns[: self.keys])


def upsert(dialect: Dialect, table: Table, rows: Sequence[Sequence[Any]]) -> Statement:
    """Write these rows, whether or not they are there."""
    return _given(dialect, _upsert(dialect, table), rows)


def insert(dialect: Dialect, table: Table, rows: Sequence[Sequence[Any]], *, anew: bool = False) -> Statement:
    """Write these rows; of those that are there the old ones stay, or with `anew` none may be there."""
    ending = "" if anew else " ON CONFLICT DO NOTHING"
    return _given(dialect, _insert(dialect, table) + ending, rows)


def guarded_update(dialect: Dialect, table: Table, rows: Sequence[Sequence[Any]]) -> Statement:
    """Update rows by their key; the last column is the `seq` each must have had, or nothing is written.

    A row that has moved on would get no `seq` at all, which its table does not allow.
    """
    return _given(dialect, _update(dialect, table), rows)


def over(
    dialect: Dialect, sql: str, columns: tuple[tuple[str, str], ...], rows: Sequence[Sequence[Any]]
) -> Statement:
    """A statement over these rows, which its text calls `{k}` and, one of them, `k`."""
    if dialect == "sqlite":
        given = ", ".join(f"${i} AS {name}" for i, (name, _) in enumerate(columns, 1))
        return Statement(sql.format(k=f"(SELECT {given}) AS k"), rows)
    table = Table("", columns, len(columns))
    return _given(dialect, sql.format(k=f"{_arrays(table)} AS k ({table.names})"), rows)


async def find(database: Database, table: Table, keys: Sequence[Sequence[Any]]) -> list[Row]:
    """The rows of these keys, in any order."""
    if not keys:
        return []
    sql = _find(database.dialect, table)
    if database.dialect == "postgres":
        return await database.fetch(sql, *(list(column) for column in zip(*keys, strict=True)))
    return await database.fetch(sql, msgspec.json.encode(keys).decode())


def _given(dialect: Dialect, sql: str, rows: Sequence[Sequence[Any]]) -> Statement:
    """PostgreSQL takes one array a column, SQLite one row after another."""
    if dialect == "sqlite" or not rows:
        return Statement(sql, rows)
    return Statement(sql, [[list(column) for column in zip(*rows, strict=True)]])


@cache
def _insert(dialect: Dialect, table: Table) -> str:
    if dialect == "sqlite":
        places = ", ".join(f"${i + 1}" for i in range(len(table.columns)))
        return f"INSERT INTO {table.name} ({table.names}) VALUES ({places})"
    return f"INSERT INTO {table.name} ({table.names}) SELECT * FROM {_arrays(table)}"


@cache
def _upsert(dialect: Dialect, table: Table) -> str:
    others = ", ".join(f"{name} = EXCLUDED.{name}" for name, _ in table.columns[table.keys :])
    return f"{_insert(dialect, table)} ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {others}"


@cache
def _update(dialect: Dialect, table: Table) -> str:
    last = len(table.columns) + 1
    if dialect == "sqlite":
        changes = [f"{name} = ${i}" for i, (name, _) in enumerate(table.columns, 1) if name not in table.key]
        changes = [change for change in changes if not change.startswith("seq =")]
        seq = next(i for i, (name, _) in enumerate(table.columns, 1) if name == "seq")
        guard = f"seq = CASE WHEN seq = ${last} THEN ${seq} END"
        named = " AND ".join(f"{name} = ${i}" for i, name in enumerate(table.key, 1))
        return f"UPDATE {table.name} SET {', '.join([guard, *changes])} WHERE {named}"
    given = Table(table.name, (*table.columns, ("expected", "int")), table.keys)
    changes = [f"{name} = k.{name}" for name, _ in table.columns[table.keys :] if name != "seq"]
    guard = "seq = CASE WHEN t.seq = k.expected THEN k.seq END"
    named = " AND ".join(f"t.{name} = k.{name}" for name in table.key)
    return (
        f"UPDATE {table.name} t SET {', '.join([guard, *changes])} "
        f"FROM {_arrays(given)} AS k ({given.names}) WHERE {named}"
    )


@cache
def _find(dialect: Dialect, table: Table) -> str:
    columns = ", ".join(f"t.{name}" for name, _ in table.columns)
    if dialect == "sqlite":
        named = " AND ".join(
            f"t.{name} = json_extract(k.value, '$[{i}]')" for i, name in enumerate(table.key)
        )
        # CROSS: look each key up, whatever the planner thinks of it.
        return f"SELECT {columns} FROM json_each($1) k CROSS JOIN {table.name} t ON {named}"
    keys = Table(table.name, table.columns[: table.keys], table.keys)
    named = " AND ".join(f"t.{name} = k.{name}" for name in table.key)
    return f"SELECT {columns} FROM {_arrays(keys)} AS k ({keys.names}) JOIN {table.name} t ON {named}"


def _arrays(table: Table) -> str:
    arrays = ", ".join(f"${i}::{_TYPES[type]}[]" for i, (_, type) in enumerate(table.columns, 1))
    return f"unnest({arrays})"
