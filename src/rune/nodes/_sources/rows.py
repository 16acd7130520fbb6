"""Rows of a query, in the order of a key: each portion begins after the last key, so none is counted off."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from rune.core.errors import NodeError
from rune.core.node import Portion, StepContext
from rune.core.sources import Query
from rune.nodes._sql import Databases, Ran
from rune.nodes._statements import statements

__all__ = ["read_rows"]

_MOST = 1000
"""Rows of one portion."""
_KEY, _TYPE, _AGAIN = "~key", "~type", "~again"
"""Columns of our own: the key as text, its type, and whether the row before has the same."""


class _Place(Struct):
    """The last key, as the database writes it, so that a key of any type comes back as it was."""

    after: str
    type: str


async def read_rows(source: Query, context: StepContext, position: Any, wanted: int) -> Portion:
    """Some rows as objects."""
    place = None if position is None else msgspec.convert(position, _Place)
    wanted = min(wanted, _MOST)
    if place is None and (await _run(source, context, _without_key(source), [])).rows:
        raise NodeError(
            f"`key`: the column {source.key!r} has a null; rows without a key have no place in an order",
            "SOURCE_KEY",
            {"key": source.key},
        )
    # One more than wanted, to see whether there is more, and whether the next row has the same key.
    after = [] if place is None else [place.after]
    ran = await _run(source, context, _page(source, place, wanted + 1), after)
    rows = ran.rows
    _check(source, ran)
    last = rows[wanted - 1] if len(rows) > wanted else None
    following = None if last is None else {"after": last[_KEY], "type": last[_TYPE]}
    own = (_KEY, _TYPE, _AGAIN)
    items = [{name: row[name] for name in ran.columns if name not in own} for row in rows[:wanted]]
    return Portion(items, following)


def _check(source: Query, ran: Ran) -> None:
    twice = next((row for row in ran.rows if row[_AGAIN]), None)
    if twice is not None:
        raise NodeError(
            f"`key`: {twice[_KEY]!r} is the {source.key!r} of several rows; name a column that is unique, or "
            "make one in the query",
            "SOURCE_KEY",
            {"key": source.key, "value": twice[_KEY]},
        )


def _without_key(source: Query) -> str:
    return f"SELECT 1 AS n FROM {_inner(source)} WHERE source.{_quoted(source.key)} IS NULL LIMIT 1"


def _page(source: Query, place: _Place | None, limit: int) -> str:
    key = _quoted(source.key)
    type_of = f"CAST(pg_typeof(page.{key}) AS text)" if source.engine == "postgres" else f"typeof(page.{key})"
    number = len(source.params or ()) + 1
    beyond = ""
    if place is not None:
        beyond = f" WHERE source.{key} > CAST(CAST(${number} AS text) AS {place.type})"
    return (
        f'SELECT page.*, CAST(page.{key} AS text) AS "{_KEY}", {type_of} AS "{_TYPE}", '
        f'page.{key} = lag(page.{key}) OVER (ORDER BY page.{key}) AS "{_AGAIN}" '
        f"FROM (SELECT * FROM {_inner(source)}{beyond} ORDER BY source.{key} LIMIT {limit}) AS page "
        f"ORDER BY page.{key}"
    )


def _inner(source: Query) -> str:
    asked = statements(source.query)
    if len(asked) != 1:
        raise NodeError(f"`query` is one SELECT, not {len(asked)} statements", "SOURCE_QUERY")
    # A comment at the end of the query must not hide what follows.
    return f"({asked[0]}\n) AS source"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


async def _run(source: Query, context: StepContext, command: str, more: list[Any]) -> Ran:
    databases: Databases = context.service("sql")
    params = [*(source.params or ()), *more]
    if source.engine == "postgres":
        credential = await context.credential(source.auth)
        return await databases.select(credential, command, params, source.timeout)
    ran: list[Ran] = await context.service("threads").run(
        lambda: databases.duckdb(source.database, command, params)
    )
    return ran[0]
