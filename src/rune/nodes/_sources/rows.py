"""Rows of a query, in the order of a key: each portion begins after the last key, so none is counted off."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from rune.core.errors import NodeError
from rune.core.node import Portion, StepContext
from rune.core.sources import Query
from rune.nodes._sql import Databases, Ran
from rune.nodes._statements import parameters, statements

__all__ = ["read_rows"]

_MOST = 1000
"""Rows of one portion."""
_PORTION = 1024 * 1024
"""Bytes of rows, as the database writes them, after which a portion is enough."""
_KEY, _TYPE, _AGAIN, _FOUND, _BEFORE = "~key", "~type", "~again", "~found", "~before"
"""Columns of our own: the key as text, its type, whether the next row has the same, how many rows there were
to choose from, and the bytes of those before."""
_ROW = '"~row"'
"""A row of the query: a column of the same name would be taken for it."""


class _Place(Struct):
    """The last key, as the database writes it, so that a key of any type comes back as it was."""

    after: str
    type: str
    most: int = _MOST
    """Rows to choose from: not many more than the last portion had room for, as the database looks at all."""


async def read_rows(source: Query, context: StepContext, position: Any, wanted: int) -> Portion:
    """Some rows as objects."""
    place = None if position is None else msgspec.convert(position, _Place)
    wanted = min(wanted, place.most if place else _MOST)
    if place is None and (await _run(source, context, _without_key(source), [])).rows:
        raise NodeError(
            f"`key`: the column {source.key!r} has a null; rows without a key have no place in an order",
            "SOURCE_KEY",
            {"key": source.key},
        )
    # One more than wanted, to see whether there is more, and whether the next row has the same key.
    after = [] if place is None else [place.after]
    ran = await _run(source, context, _page(source, place, wanted + 1), after)
    _check(source, ran)
    rows, following = ran.rows[:wanted], None
    if rows and rows[-1][_FOUND] > len(rows):
        last, most = rows[-1], min(_MOST, 2 * len(rows))
        following = {"after": last[_KEY], "type": last[_TYPE], "most": most}
    own = (_KEY, _TYPE, _AGAIN, _FOUND, _BEFORE)
    items = [{name: row[name] for name in ran.columns if name not in own} for row in rows]
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
    postgres = source.engine == "postgres"
    type_of = f"CAST(pg_typeof({_ROW}.{key}) AS text)" if postgres else f"typeof({_ROW}.{key})"
    text = f"CAST({_ROW} AS text)" if postgres else f"encode(CAST({_ROW} AS text))"
    number = len(source.params or ()) + 1
    beyond = ""
    if place is not None:
        beyond = f" WHERE source.{key} > CAST(CAST(${number} AS text) AS {place.type})"
    # The database itself counts the bytes, so that it never sends many more than are enough.
    return (
        f'SELECT * FROM (SELECT {_ROW}.*, CAST({_ROW}.{key} AS text) AS "{_KEY}", {type_of} AS "{_TYPE}", '
        f'{_ROW}.{key} = lead({_ROW}.{key}) OVER (ORDER BY {_ROW}.{key}) AS "{_AGAIN}", '
        f'count(*) OVER () AS "{_FOUND}", '
        f"coalesce(sum(octet_length({text})) OVER (ORDER BY {_ROW}.{key} "
        f'ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS "{_BEFORE}" '
        f"FROM (SELECT * FROM {_inner(source)}{beyond} ORDER BY source.{key} LIMIT {limit}) AS {_ROW}"
        f') AS sized WHERE "{_BEFORE}" < {_PORTION} ORDER BY sized.{key}'
    )


def _inner(source: Query) -> str:
    asked = statements(source.query)
    if len(asked) != 1:
        raise NodeError(f"`query` is one SELECT, not {len(asked)} statements", "SOURCE_QUERY")
    if len(source.params or ()) > (known := parameters(asked[0])):
        raise NodeError(
            f"`params` has {len(source.params or ())} values, and the query names {known} (`$1`, `$2`, …)",
            "SOURCE_QUERY",
        )
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
        lambda: databases.duckdb(source.database, command, params, reading=True)
    )
    return ran[0]
