"""The audit log: who did what, when, from where, and how it ended; rows are added and never changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from rune.history.database import Database, Row, Statement
from rune.history.grouping import Grouped
from rune.history.paging import Page, after, paged

__all__ = ["AuditLog", "Entry"]

_COLUMNS = ("id", "at", "account_id", "account", "via", "address", "action", "object", "outcome", "details")


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that somebody did or tried to do."""

    id: str
    """Ascends with time."""
    at: float
    account_id: str = ""
    account: str = ""
    via: str = ""
    """`session`, `token`, `open` (without accounts), or empty for the system itself."""
    address: str = ""
    action: str
    object: str = ""
    outcome: str = "ok"
    """`ok`, `denied` or `failed`."""
    details: Mapping[str, Any] = {}

    @classmethod
    def new(cls, at: float, action: str, **fields: Any) -> Entry:
        """A fresh entry."""
        return cls(id=f"{int(at * 1000):012x}{os.urandom(6).hex()}", at=at, action=action, **fields)

    def statement(self, condition: str = "1 = 1", *args: Any) -> Statement:
        """Write it, if a condition on `args` (`$1`, `$2` …) holds: in the transaction of what it tells of."""
        first = len(args) + 1
        values = [f"${first + n}" for n in range(len(_COLUMNS))]
        values[1] = f"CAST({values[1]} AS DOUBLE PRECISION)"
        row = [*args, *(getattr(self, name) for name in _COLUMNS[:-1]), _encoded(self.details)]
        columns = ", ".join(_COLUMNS)
        sql = f"INSERT INTO audit ({columns}) SELECT {', '.join(values)} WHERE {condition}"
        return Statement(sql, [row])


def _encoded(details: Mapping[str, Any]) -> str:
    return msgspec.json.encode(dict(details)).decode()


class AuditLog:
    """Adds entries and lists them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._adding: Grouped[Entry, None] = Grouped(self._add)

    async def add(self, entry: Entry) -> None:
        """Write one entry."""
        await self._adding.ask(entry)

    async def _add(self, entries: list[Entry]) -> list[None]:
        statements = [entry.statement() for entry in entries]
        rows = [row for statement in statements for row in statement.rows]
        await self._database.write(Statement(statements[0].sql, rows))
        return [None] * len(entries)

    async def list(
        self, limit: int, cursor: str | None = None, *, action: str = "", object: str = "", account: str = ""
    ) -> Page[Entry]:
        """Entries, the newest first; by the beginning of the action, the object, the account."""
        # Ids are hexadecimal, so that this one is after all of them.
        (before,) = after(cursor, str) if cursor else ("g",)
        rows = await self._database.fetch(
            _PAGE, before, f"{_escaped(action)}%", object, account.lower(), limit + 1
        )
        return paged([_entry(row) for row in rows], limit, lambda entry: (entry.id,))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _entry(row: Row) -> Entry:
    fields = {name: row[name] for name in _COLUMNS}
    return Entry(**{**fields, "details": msgspec.json.decode(fields["details"])})


_PAGE = """
SELECT * FROM audit
WHERE id < $1 AND action LIKE $2 ESCAPE '\\' AND ($3 = '' OR object = $3) AND ($4 = '' OR account = $4)
ORDER BY id DESC LIMIT $5
"""
