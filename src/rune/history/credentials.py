"""The credential store: values go in, and come out for workers only."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rune.core.errors import InfrastructureError
from rune.credentials import CredentialsError
from rune.history.audit import Entry
from rune.history.database import Database, Row, Statement
from rune.history.migrating import migrate
from rune.history.paging import Page, after, paged
from rune.history.vault import Vault, WrongKey, load_vault
from rune.settings import Settings

__all__ = ["CREDENTIAL_ID", "CredentialStore", "Stored", "StoredCredentials", "open_source", "open_store"]

_log = logging.getLogger("rune.credentials")

CREDENTIAL_ID = r"^[A-Za-z0-9_-][A-Za-z0-9_.@:-]{0,99}$"
"""What ids look like: they are also the names of files."""
_CHECK = b"the key of this database"
_TRIES = 5
FRESH = 2.0
"""Seconds for which a worker takes a credential for unchanged."""
STALE = 300.0
"""Seconds for which it still uses one while the database is out of reach."""


class Stored(Struct, frozen=True, kw_only=True):
    """A credential as everybody may see it: without values."""

    id: str
    name: str
    type: str
    fields: list[str]
    version: int
    created_at: float
    rotated_at: float
    created_by: str


class CredentialStore:
    """Credentials, sealed for their id and version."""

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock

    @property
    def vault(self) -> Vault:
        """What seals them."""
        return self._vault

    @staticmethod
    def new_id() -> str:
        """The id of a credential to be."""
        return f"cred_{os.urandom(8).hex()}"

    async def create(
        self, id: str, name: str, type: str, data: Mapping[str, Any], by: str, entry: Entry
    ) -> Stored:
        """Keep a new credential; ConflictError if there is one of this id."""
        now = self._clock()
        row = (id, name, type, _names(data), 1, self._sealed(id, 1, data), now, now, by)
        (rows, _) = await self._database.write((_CREATE, [row]), entry.statement())
        return _stored(rows[0])

    async def rotate(self, id: str, data: Mapping[str, Any], name: str | None, entry: Entry) -> Stored | None:
        """Put new values in place of the old ones."""
        for _ in range(_TRIES):
            found = await self.get(id)
            if found is None:
                return None
            version = found.version + 1
            sealed = self._sealed(id, version, data)
            row = (id, found.version, version, _names(data), sealed, self._clock(), name)
            # No two seals are the same, so that this tells whether it was ours that went in.
            ours = "EXISTS (SELECT 1 FROM credential WHERE id = $1 AND sealed = $2)"
            (rows, _) = await self._database.write((_ROTATE, [row]), entry.statement(ours, id, sealed))
            if rows:
                return _stored(rows[0])
        raise InfrastructureError(f"the credential '{id}' is being changed by others all the time")

    async def delete(self, id: str, entry: Entry) -> bool:
        """Forget a credential."""
        (_, rows) = await self._database.write(
            entry.statement("EXISTS (SELECT 1 FROM credential WHERE id = $1)", id),
            Statement("DELETE FROM credential WHERE id = $1 RETURNING id", [(id,)]),
        )
        return bool(rows)

    async def get(self, id: str) -> Stored | None:
        """One credential, without values."""
        row = await self._database.fetch_one("SELECT * FROM credential WHERE id = $1", id)
        return _stored(row) if row else None

    async def list(self, limit: int, cursor: str | None = None) -> Page[Stored]:
        """Credentials by id, without values."""
        (id,) = after(cursor, str) if cursor else ("",)
        sql = "SELECT * FROM credential WHERE id > $1 ORDER BY id LIMIT $2"
        found = [_stored(row) for row in await self._database.fetch(sql, id, limit + 1)]
        return paged(found, limit, lambda credential: (credential.id,))

    async def users_of(self, id: str) -> Sequence[str]:
        """The workflows whose latest or published version refers to a credential, by name."""
        quoted = msgspec.json.encode(id).decode().replace("\\", "\\\\").replace("_", "\\_")
        rows = await self._database.fetch(_USERS, f"%{quoted}%")
        found = {row["name"] for row in rows if id in _references(msgspec.json.decode(row["text"]))}
        return sorted(found)

    async def reveal(self, id: str) -> Mapping[str, Any] | None:
        """The values, for whoever uses them; WrongKey if they cannot be read."""
        row = await self._database.fetch_one("SELECT version, sealed FROM credential WHERE id = $1", id)
        if row is None:
            return None
        plain = self._vault.open(bytes(row["sealed"]), _purpose(id, row["version"]))
        return msgspec.json.decode(plain, type=dict[str, Any])

    async def reseal(self) -> int:
        """Seal all that is under an older key anew under the first one; how many that were."""
        done = 0
        for row in await self._database.fetch("SELECT id, version, sealed FROM credential"):
            old, purpose = bytes(row["sealed"]), _purpose(row["id"], row["version"])
            if not self._vault.is_current(old):
                sealed = self._vault.seal(self._vault.open(old, purpose), purpose)
                await self._database.write((_RESEAL, [(row["id"], row["version"], sealed)]))
                done += 1
        return done

    def _sealed(self, id: str, version: int, data: Mapping[str, Any]) -> bytes:
        return self._vault.seal(msgspec.json.encode(data), _purpose(id, version))


def _references(definition: Any) -> set[str]:
    nodes = definition.get("nodes", ()) if isinstance(definition, dict) else ()
    return {node["credentials"]["id"] for node in nodes if (node.get("credentials") or {}).get("id")}


def _purpose(id: str, version: int) -> str:
    return f"credential {version} {id}"


def _names(data: Mapping[str, Any]) -> str:
    return msgspec.json.encode(sorted(data)).decode()


def _stored(row: Row) -> Stored:
    fields = {name: row[name] for name in Stored.__struct_fields__}
    return Stored(**{**fields, "fields": msgspec.json.decode(fields["fields"])})


async def open_store(
    database: Database, settings: Settings, key_file: Path | None = None
) -> CredentialStore | None:
    """A master's store, or None without a key; WrongKey if the database has another one.

    A database without a key yet takes this one. What an older key sealed is sealed anew. `key_file` is where
    a key is made and kept if the settings name none.
    """
    vault = load_vault(settings, key_file)
    if vault is None:
        if await database.fetch_one("SELECT 1 AS found FROM vault") is not None:
            raise WrongKey("credentials are stored under a key: give it, by RUNE_KEY or RUNE_KEY_FILE")
        _log.warning("without RUNE_KEY or RUNE_KEY_FILE no credentials can be stored")
        return None
    store = CredentialStore(database, vault)
    fresh = vault.seal(_CHECK, "vault")
    sql = "INSERT INTO vault (id, sealed) VALUES (1, $1) ON CONFLICT (id) DO NOTHING"
    await database.write((sql, [(fresh,)]))
    check = await _verified(database, vault)
    if renewed := await store.reseal():
        _log.info("%d credentials are now under the new key", renewed)
    if check is not None and not vault.is_current(check):
        # Last, so that whoever dies before begins again.
        await database.write(("UPDATE vault SET sealed = $1 WHERE id = 1", [(fresh,)]))
    return store


async def open_source(database: Database, settings: Settings) -> StoredCredentials | None:
    """The store as a worker reads it, or None without a key; WrongKey if the database has another one."""
    vault = load_vault(settings)
    if vault is None:
        return None
    if not await _has_vault(database):
        # A worker may be there before the first master.
        await migrate(database)
    await _verified(database, vault)
    return StoredCredentials(CredentialStore(database, vault))


async def _has_vault(database: Database) -> bool:
    """Whether the tables that credentials need have been made."""
    found = {
        "sqlite": "SELECT 1 AS found FROM sqlite_master WHERE name = 'vault'",
        "postgres": "SELECT 1 AS found WHERE to_regclass('vault') IS NOT NULL",
    }
    return await database.fetch_one(found[database.dialect]) is not None


async def _verified(database: Database, vault: Vault) -> bytes | None:
    """What the database knows its key by, if it can be opened."""
    row = await database.fetch_one("SELECT sealed FROM vault WHERE id = 1")
    if row is None:
        return None
    check = bytes(row["sealed"])
    try:
        vault.open(check, "vault")
    except WrongKey as error:
        raise WrongKey(
            "RUNE_KEY is not the key under which this database's credentials were stored; give that one, and "
            "to change it both, the new one first: RUNE_KEY=new,old"
        ) from error
    return check


class StoredCredentials:
    """The store as a source of a worker's credentials, which sees a change within seconds."""

    def __init__(
        self, store: CredentialStore, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._fresh = fresh
        self._clock = clock
        self._kept: dict[str, tuple[float, Mapping[str, Any]]] = {}

    async def find(self, reference: str) -> Mapping[str, Any] | None:
        """The credential of this id."""
        now = self._clock()
        read, kept = self._kept.get(reference, (float("-inf"), None))
        if now - read < self._fresh:
            return kept
        try:
            found = await self._store.reveal(reference)
        except WrongKey as error:
            raise CredentialsError(f"the credential '{reference}' cannot be read: {error}") from error
        except InfrastructureError as error:
            if kept is not None and now < read + STALE:
                return kept
            failed = CredentialsError(f"the store of credentials is out of reach: {error}")
            failed.retryable = True
            raise failed from error
        if found is None:
            self._kept.pop(reference, None)
        else:
            self._kept[reference] = (now, found)
        return found


_CREATE = """
INSERT INTO credential (id, name, type, fields, version, sealed, created_at, rotated_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *
"""
_ROTATE = """
UPDATE credential SET version = $3, fields = $4, sealed = $5, rotated_at = $6, name = COALESCE($7, name)
WHERE id = $1 AND version = $2 RETURNING *
"""
_USERS = """
SELECT w.name, d.text FROM workflow w
JOIN workflow_version v ON v.workflow_id = w.id AND v.version IN (w.version, w.published)
JOIN definition d ON d.hash = v.hash
WHERE w.deleted_at IS NULL AND d.text LIKE $1 ESCAPE '\\'
"""
_RESEAL = "UPDATE credential SET sealed = $3 WHERE id = $1 AND version = $2"
