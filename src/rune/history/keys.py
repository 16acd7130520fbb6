"""What people and programs show instead of a password: sessions and tokens, kept as hashes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec import Struct

from rune.history.accounts import Account
from rune.history.audit import Entry
from rune.history.database import Database, Row, Statement
from rune.history.paging import Page, after, paged

__all__ = ["Bearer", "Sessions", "Token", "Tokens"]

_TOUCH = 60.0
"""Seconds after which another use is written down."""


class Bearer(Struct, frozen=True):
    """Whose session or token it is."""

    key: str
    account: str
    name: str
    role: int
    """The account's, or the token's if that is lower."""


class Sessions:
    """The sessions of browsers."""

    def __init__(
        self, database: Database, idle: float, longest: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._idle, self._longest = idle, longest
        self._clock = clock

    async def begin(self, hash: str, account: Account, address: str, agent: str, old: str = "") -> None:
        """Begin a session in place of an old one; those that have ended are forgotten."""
        now = self._clock()
        await self._database.write(
            ("DELETE FROM session WHERE hash = $1", [(old,)]),
            (
                "DELETE FROM session WHERE created_at <= $1 OR seen_at <= $2",
                [(now - self._longest, now - self._idle)],
            ),
            (_BEGIN, [(hash, account.id, now, now, address, agent[:200])]),
        )

    async def find(self, hash: str) -> Bearer | None:
        """Whose session this is, if it has not ended."""
        now = self._clock()
        row = await self._database.fetch_one(_SESSION, hash, now - self._longest, now - self._idle)
        return await self._seen(row, now) if row else None

    async def lives(self, hash: str) -> bool:
        """Whether a session has not ended; to ask is no use of it."""
        now = self._clock()
        row = await self._database.fetch_one(_SESSION, hash, now - self._longest, now - self._idle)
        return row is not None

    async def _seen(self, row: Row, now: float) -> Bearer:
        if row["seen_at"] < now - min(_TOUCH, self._idle / 10):
            await self._database.write(
                ("UPDATE session SET seen_at = $2 WHERE hash = $1 AND seen_at < $2", [(row["hash"], now)])
            )
        return Bearer(row["hash"], row["account_id"], row["name"], row["role"])

    async def end(self, hash: str, entry: Entry) -> None:
        """End one session."""
        await self._database.write(("DELETE FROM session WHERE hash = $1", [(hash,)]), entry.statement())

    async def end_all(self, account: str, entry: Entry) -> None:
        """End every session of an account."""
        delete = ("DELETE FROM session WHERE account_id = $1", [(account,)])
        await self._database.write(delete, entry.statement())


class Token(Struct, frozen=True, kw_only=True):
    """A program's key, without the key."""

    id: str
    name: str
    account_id: str
    account: str
    role: int
    created_at: float
    expires_at: float | None
    used_at: float | None


class Tokens:
    """The tokens of programs."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def create(
        self, hash: str, account: str, name: str, role: int, expires_at: float | None, entry: Entry
    ) -> Token:
        """A new token of an account."""
        id = entry.object
        row = (id, hash, account, name, role, self._clock(), expires_at)
        await self._database.write((_CREATE, [row]), entry.statement())
        made = await self.get(id)
        assert made is not None
        return made

    @staticmethod
    def new_id() -> str:
        """The id of a token to be."""
        return f"token_{os.urandom(8).hex()}"

    async def get(self, id: str) -> Token | None:
        """One token."""
        row = await self._database.fetch_one(f"{_TOKENS} WHERE token.id = $1", id)
        return _token(row) if row else None

    async def list(self, account: str | None, limit: int, cursor: str | None = None) -> Page[Token]:
        """Tokens of one account or of all, by id."""
        (id,) = after(cursor, str) if cursor else ("",)
        where = "WHERE token.id > $1 AND ($2 = '' OR token.account_id = $2) ORDER BY token.id LIMIT $3"
        rows = await self._database.fetch(f"{_TOKENS} {where}", id, account or "", limit + 1)
        return paged([_token(row) for row in rows], limit, lambda token: (token.id,))

    async def revoke(self, id: str, account: str | None, entry: Entry) -> bool:
        """Remove a token, of this account if one is named."""
        mine = "id = $1 AND ($2 = '' OR account_id = $2)"
        args = (id, account or "")
        (_, rows) = await self._database.write(
            entry.statement(f"EXISTS (SELECT 1 FROM token WHERE {mine})", *args),
            Statement(f"DELETE FROM token WHERE {mine} RETURNING id", [args]),
        )
        return bool(rows)

    async def find(self, hash: str) -> Bearer | None:
        """Whose token this is, if it has not expired; never more than the account's role is now."""
        now = self._clock()
        row = await self._database.fetch_one(_FIND_TOKEN, hash, now)
        if row is None:
            return None
        used = row["used_at"] or 0.0
        if used < now - _TOUCH:
            await self._database.write(
                (
                    "UPDATE token SET used_at = $2 WHERE id = $1 AND COALESCE(used_at, 0) < $2",
                    [(row["id"], now)],
                )
            )
        return Bearer(row["id"], row["account_id"], row["name"], min(row["role"], row["account_role"]))

    async def lives(self, id: str) -> bool:
        """Whether a token was neither revoked nor has expired, and its account is not disabled."""
        return await self._database.fetch_one(_LIVING_TOKEN, id, self._clock()) is not None


def _token(row: Row) -> Token:
    return Token(**{name: row[name] for name in Token.__struct_fields__})


_BEGIN = """
INSERT INTO session (hash, account_id, created_at, seen_at, address, agent) VALUES ($1, $2, $3, $4, $5, $6)
"""
_SESSION = """
SELECT session.*, account.name, account.role FROM session JOIN account ON account.id = session.account_id
WHERE hash = $1 AND session.created_at > $2 AND session.seen_at > $3 AND account.disabled = 0
"""
_CREATE = """
INSERT INTO token (id, hash, account_id, name, role, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_TOKENS = """
SELECT token.id, token.name, account_id, account.name AS account, token.role, token.created_at, expires_at,
    used_at
FROM token JOIN account ON account.id = token.account_id
"""
_TOKEN = """
SELECT token.id, token.used_at, token.role, account_id, account.name, account.role AS account_role
FROM token JOIN account ON account.id = token.account_id
WHERE (expires_at IS NULL OR expires_at > $2) AND account.disabled = 0
"""
_FIND_TOKEN = f"{_TOKEN} AND hash = $1"
_LIVING_TOKEN = f"{_TOKEN} AND token.id = $1"
