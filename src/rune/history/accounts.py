"""Accounts: people with a password and a role; the last admin can never be lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from rune.core.errors import RuneError
from rune.history.audit import Entry
from rune.history.database import Database, Row, Statement
from rune.history.paging import Page, after, paged

__all__ = ["ADMIN", "Account", "Accounts", "LastAdmin"]

ADMIN = 4
"""The role that may manage accounts."""


class LastAdmin(RuneError):
    """Nobody could manage accounts any more."""


class Account(Struct, frozen=True, kw_only=True):
    """One who can log in; the password's hash is read by `Accounts.password` only."""

    id: str
    name: str
    role: int
    disabled: bool
    created_at: float
    updated_at: float
    login_at: float | None


class Accounts:
    """The accounts of a database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def any(self) -> bool:
        """Whether there is an account."""
        return await self._database.fetch_one("SELECT 1 AS found FROM account LIMIT 1") is not None

    async def get(self, id: str) -> Account | None:
        """One account."""
        row = await self._database.fetch_one("SELECT * FROM account WHERE id = $1", id)
        return _account(row) if row else None

    async def password(self, name: str) -> tuple[Account, str] | None:
        """The account of this name and its password's hash."""
        row = await self._database.fetch_one("SELECT * FROM account WHERE name = $1", name.lower())
        return (_account(row), row["password"]) if row else None

    async def list(self, limit: int, cursor: str | None = None) -> Page[Account]:
        """Accounts by name."""
        (name,) = after(cursor, str) if cursor else ("",)
        sql = "SELECT * FROM account WHERE name > $1 ORDER BY name LIMIT $2"
        found = [_account(row) for row in await self._database.fetch(sql, name, limit + 1)]
        return paged(found, limit, lambda account: (account.name,))

    async def create(self, name: str, password: str, role: int, entry: Entry) -> Account:
        """A new account; ConflictError if the name is taken."""
        row = self._fresh(name, password, role)
        (rows, _) = await self._database.write((_CREATE, [row]), entry.statement())
        return _account(rows[0])

    async def create_first(
        self, name: str, password: str, entry: Entry, *, setup: str | None = None
    ) -> Account | None:
        """The first account, an admin, if there is none yet; with `setup`, only if that is known."""
        now = self._clock()
        row = self._fresh(name, password, ADMIN)
        known = "EXISTS (SELECT 1 FROM setup WHERE hash = $1 AND expires_at > $2)"
        none = "NOT EXISTS (SELECT 1 FROM account)"
        turn = Statement(_TURN)
        if setup is None:
            told = entry.statement(none)
            made = (f"{_CREATE_IF} WHERE {none} RETURNING *", [row])
        else:
            told = entry.statement(f"{none} AND {known}", setup, now)
            known = "EXISTS (SELECT 1 FROM setup WHERE hash = $7 AND expires_at > $8)"
            made = (f"{_CREATE_IF} WHERE {none} AND {known} RETURNING *", [[*row, setup, now]])
        used = Statement("DELETE FROM setup WHERE EXISTS (SELECT 1 FROM account)")
        (_, _, rows, _) = await self._database.write(turn, told, made, used)
        return _account(rows[0]) if rows else None

    async def change(
        self,
        id: str,
        entry: Entry,
        *,
        role: int | None = None,
        disabled: bool | None = None,
        password: str | None = None,
        keep: str = "",
    ) -> Account | None:
        """Change an account; with a new password or disabled, its sessions end, but for the one to `keep`."""
        off = None if disabled is None else int(disabled)
        allowed = f"EXISTS (SELECT 1 FROM account WHERE {_MAY_CHANGE})"
        writes = [
            Statement(_TURN),
            entry.statement(allowed, id, role, off),
            Statement(_CHANGE, [(id, role, off, password, self._clock())]),
        ]
        if password is not None or disabled:
            writes.append(Statement("DELETE FROM session WHERE account_id = $1 AND hash <> $2", [(id, keep)]))
        rows = (await self._database.write(*writes))[2]
        return await self._changed(id, rows)

    async def delete(self, id: str, entry: Entry) -> Account | None:
        """Remove an account with its sessions and tokens."""
        gone = "NOT EXISTS (SELECT 1 FROM account WHERE id = $1)"
        allowed = f"EXISTS (SELECT 1 FROM account WHERE {_MAY_DELETE})"
        (_, _, rows, *_) = await self._database.write(
            Statement(_TURN),
            entry.statement(allowed, id),
            Statement(f"DELETE FROM account WHERE {_MAY_DELETE} RETURNING *", [(id,)]),
            Statement(f"DELETE FROM session WHERE account_id = $1 AND {gone}", [(id,)]),
            Statement(f"DELETE FROM token WHERE account_id = $1 AND {gone}", [(id,)]),
        )
        return await self._changed(id, rows)

    async def _changed(self, id: str, rows: Sequence[Row]) -> Account | None:
        if not rows and await self.get(id) is not None:
            raise LastAdmin("this is the last account that can manage accounts; make another admin first")
        return _account(rows[0]) if rows else None

    async def logged_in(self, id: str, password: str | None = None) -> None:
        """Note a login, and the password's hash by newer parameters."""
        sql = "UPDATE account SET login_at = $2, password = COALESCE($3, password) WHERE id = $1"
        await self._database.write((sql, [(id, self._clock(), password)]))

    async def expect(self, setup: str, seconds: float) -> None:
        """Let whoever shows what this is the hash of make the first account, for so long."""
        await self._database.write(
            ("DELETE FROM setup WHERE expires_at <= $1", [(self._clock(),)]),
            ("INSERT INTO setup (hash, expires_at) VALUES ($1, $2)", [(setup, self._clock() + seconds)]),
        )

    async def expects(self, setup: str) -> bool:
        """Whether the first account may be made with this."""
        sql = "SELECT 1 AS found FROM setup WHERE hash = $1 AND expires_at > $2"
        return await self._database.fetch_one(sql, setup, self._clock()) is not None

    def _fresh(self, name: str, password: str, role: int) -> Sequence[Any]:
        now = self._clock()
        return [f"user_{os.urandom(8).hex()}", name.lower(), password, role, now, now]


def _account(row: Row) -> Account:
    fields = {name: row[name] for name in Account.__struct_fields__}
    return Account(**{**fields, "disabled": bool(fields["disabled"])})


# A change waits here for the one before it, so that two admins cannot remove each other at the same time.
_TURN = "UPDATE account_turn SET turn = turn + 1 WHERE id = 1"
_CREATE_IF = """
INSERT INTO account (id, name, password, role, created_at, updated_at)
SELECT $1, $2, $3, CAST($4 AS INTEGER), CAST($5 AS DOUBLE PRECISION), CAST($6 AS DOUBLE PRECISION)
"""
_CREATE = f"{_CREATE_IF} WHERE 1 = 1 RETURNING *"
_OTHERS = """(
    role <> 4 OR disabled = 1 OR EXISTS (
        SELECT 1 FROM account AS other WHERE other.id <> $1 AND other.role = 4 AND other.disabled = 0))
"""
_MAY_DELETE = f"id = $1 AND {_OTHERS}"
_MAY_CHANGE = f"""
id = $1 AND ((COALESCE($2, role) = 4 AND COALESCE($3, disabled) = 0) OR {_OTHERS})
"""
_CHANGE = f"""
UPDATE account SET
    role = COALESCE($2, role), disabled = COALESCE($3, disabled), password = COALESCE($4, password),
    updated_at = $5
WHERE {_MAY_CHANGE} RETURNING *
"""
