"""The credential store and its vault, on both databases."""

from __future__ import annotations

import asyncio
import os
import stat
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.errors import ConflictError, InfrastructureError, NodeError
from rune.credentials import Credentials, CredentialsError
from rune.history import Database
from rune.history.audit import AuditLog, Entry
from rune.history.credentials import CredentialStore, StoredCredentials, open_source, open_store
from rune.history.migrating import migrate
from rune.history.vault import Vault, WrongKey, load_vault
from rune.settings import Settings, SettingsError

OLD, NEW = b"o" * 32, b"n" * 32
DATA = {"username": "ada", "password": "correct horse"}


def settings(*keys: bytes) -> Settings:
    return Settings(key=",".join(b64encode(key).decode() for key in keys))


def entry(action: str = "credential.test") -> Entry:
    return Entry.new(1.0, action)


@pytest.fixture
async def tables(database: Database) -> Database:
    await migrate(database)
    return database


@pytest.fixture
async def store(tables: Database) -> CredentialStore:
    opened = await open_store(tables, settings(OLD))
    assert opened is not None
    return opened


# --- the vault ---------------------------------------------------------------------------------------------


@given(st.binary(max_size=200), st.text(max_size=20))
def test_what_is_sealed_opens_for_its_purpose_only(plain: bytes, purpose: str) -> None:
    vault = Vault([OLD])
    sealed = vault.seal(plain, purpose)
    assert vault.open(sealed, purpose) == plain
    with pytest.raises(WrongKey):
        vault.open(sealed, f"{purpose}.")
    with pytest.raises(WrongKey):
        Vault([NEW]).open(sealed, purpose)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_what_was_changed_does_not_open(plain: bytes, data: st.DataObject) -> None:
    sealed = bytearray(Vault([OLD]).seal(plain, ""))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WrongKey):
        Vault([OLD]).open(bytes(sealed), "")
    with pytest.raises(WrongKey):
        Vault([OLD]).open(bytes(sealed[: data.draw(st.integers(0, len(sealed) - 1))]), "")


def test_the_first_key_seals_and_any_opens() -> None:
    both = Vault([NEW, OLD])
    assert both.open(Vault([OLD]).seal(b"x", ""), "") == b"x"
    assert Vault([NEW]).open(both.seal(b"x", ""), "") == b"x"
    assert both.seal(b"x", "") != both.seal(b"x", "")


@pytest.mark.parametrize(
    "text", [OLD.hex(), b64encode(OLD).decode(), urlsafe_b64encode(b"\xff" * 32).decode().rstrip("=")]
)
def test_a_key_is_base64_or_hex(text: str, tmp_path: Path) -> None:
    assert load_vault(Settings(key=text)) is not None
    (tmp_path / "key").write_text(f"{text}\n")
    assert load_vault(Settings(key_file=str(tmp_path / "key"))) is not None


@pytest.mark.parametrize("text", ["short", "x" * 64, f"{OLD.hex()},", "=" * 43, f"{OLD.hex()},nonsense", ","])
def test_a_key_that_is_none_is_refused_without_being_shown(text: str) -> None:
    if text == f"{OLD.hex()},":
        assert load_vault(Settings(key=text)) is not None
        return
    with pytest.raises(SettingsError, match="RUNE_KEY is not a key") as raised:
        load_vault(Settings(key=text))
    assert "nonsense" not in str(raised.value)


def test_a_key_file_is_made_once_and_is_nobody_else_s(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "rune.db.key"
    first = load_vault(Settings(), file)
    assert first is not None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = load_vault(Settings(), file)
    assert second is not None
    assert second.open(first.seal(b"x", ""), "") == b"x"
    assert os.listdir(file.parent) == ["rune.db.key"]


def test_without_a_key_there_is_no_vault(tmp_path: Path) -> None:
    assert load_vault(Settings()) is None
    with pytest.raises(SettingsError, match="cannot read the key file"):
        load_vault(Settings(key_file=str(tmp_path / "nowhere")))


# --- the store ---------------------------------------------------------------------------------------------


async def test_values_go_in_and_only_reveal_gives_them_out(store: CredentialStore, tables: Database) -> None:
    made = await store.create("mail", "Mail", "smtp", DATA, "ada", entry("credential.create"))
    assert (made.id, made.fields, made.version) == ("mail", ["password", "username"], 1)
    assert await store.get("mail") == made
    assert (await store.list(10)).items == [made]
    assert await store.reveal("mail") == DATA
    assert await store.reveal("other") is None
    (row,) = await tables.fetch("SELECT * FROM credential")
    assert b"correct horse" not in repr([row[name] for name in row.keys()]).encode()  # noqa: SIM118
    with pytest.raises(ConflictError):
        await store.create("mail", "", "smtp", DATA, "ada", entry("again"))
    assert [e.action for e in (await AuditLog(tables).list(9)).items] == ["credential.create"]


async def test_rotation_puts_new_values_in_place(store: CredentialStore) -> None:
    await store.create("mail", "Mail", "smtp", DATA, "ada", entry())
    rotated = await store.rotate("mail", {"password": "new one"}, None, entry())
    assert rotated is not None
    assert (rotated.version, rotated.name, rotated.fields) == (2, "Mail", ["password"])
    assert await store.reveal("mail") == {"password": "new one"}
    assert await store.rotate("other", DATA, None, entry()) is None


async def test_rotations_at_the_same_time_leave_one_that_can_be_read(store: CredentialStore) -> None:
    await store.create("mail", "Mail", "smtp", DATA, "ada", entry())
    await asyncio.gather(*(store.rotate("mail", {"n": n}, None, entry()) for n in range(3)))
    found = await store.get("mail")
    assert found is not None
    assert found.version == 4
    assert await store.reveal("mail") in [{"n": n} for n in range(3)]


async def test_values_do_not_open_under_another_id_or_version(
    store: CredentialStore, tables: Database
) -> None:
    await store.create("a", "", "", {"v": 1}, "", entry())
    await store.create("b", "", "", {"v": 2}, "", entry())
    swap = "UPDATE credential SET sealed = (SELECT sealed FROM credential WHERE id = 'b') WHERE id = 'a'"
    await tables.write((swap, [()]))
    with pytest.raises(WrongKey):
        await store.reveal("a")
    await tables.write(("UPDATE credential SET version = 9 WHERE id = 'b'", [()]))
    with pytest.raises(WrongKey):
        await store.reveal("b")


async def test_delete_forgets(store: CredentialStore) -> None:
    await store.create("mail", "Mail", "smtp", DATA, "ada", entry())
    assert await store.delete("mail", entry())
    assert not await store.delete("mail", entry())
    assert await store.reveal("mail") is None


# --- keys --------------------------------------------------------------------------------------------------


async def test_a_wrong_key_is_refused(store: CredentialStore, tables: Database) -> None:
    with pytest.raises(WrongKey, match="RUNE_KEY is not the key"):
        await open_store(tables, settings(NEW))
    with pytest.raises(WrongKey, match="RUNE_KEY is not the key"):
        await open_source(tables, settings(NEW))
    with pytest.raises(WrongKey, match="give it"):
        await open_store(tables, Settings())
    assert await open_store(tables, settings(OLD)) is not None


async def test_a_new_key_takes_over(store: CredentialStore, tables: Database) -> None:
    for n in range(3):
        await store.create(f"c{n}", "", "", {"n": n}, "", entry())
    both = await open_store(tables, settings(NEW, OLD))
    assert both is not None
    # One that still has the old key only goes on for a while.
    await store.create("late", "", "", {"n": 9}, "", entry())
    with pytest.raises(WrongKey):
        await open_store(tables, settings(NEW))
    assert await open_store(tables, settings(NEW, OLD)) is not None
    new = await open_store(tables, settings(NEW))
    assert new is not None
    assert [await new.reveal(id) for id in ("c0", "c2", "late")] == [{"n": 0}, {"n": 2}, {"n": 9}]


async def test_a_database_without_credentials_needs_no_key(tables: Database) -> None:
    assert await open_store(tables, Settings()) is None
    assert await open_source(tables, Settings()) is None


# --- workflows that refer to one ---------------------------------------------------------------------------


async def test_who_refers_to_a_credential_is_known(store: CredentialStore, tables: Database) -> None:
    from rune.history.workflows import Draft, Workflows

    workflows = Workflows(tables)

    def draft(name: str, *references: str) -> Draft:
        nodes: list[Any] = [{"id": "t"}, *({"id": r, "credentials": {"id": r}} for r in references)]
        return Draft(name=name, definition=msgspec.json.encode({"nodes": nodes}).decode())

    await workflows.create(draft("uses a_b", "a_b"))
    await workflows.create(draft("uses axb", "axb"))
    gone = await workflows.create(draft("gone", "a_b"))
    await workflows.delete(gone.id)
    changed = await workflows.create(draft("used it", "a_b"))
    await workflows.update(changed.id, 1, draft("used it"))
    assert await store.users_of("a_b") == ["uses a_b"]
    assert await store.users_of("t") == []


# --- as a source of a worker -------------------------------------------------------------------------------


class Moment:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_worker_sees_a_rotation_within_seconds(store: CredentialStore) -> None:
    await store.create("mail", "Mail", "smtp", {"v": 1}, "ada", entry())
    clock = Moment()
    source = StoredCredentials(store, clock=clock)
    credentials = Credentials(store=source)
    assert await credentials.resolve("mail") == {"v": 1}
    await store.rotate("mail", {"v": 2}, None, entry())
    assert await credentials.resolve("mail") == {"v": 1}
    clock.now += 3
    assert await credentials.resolve("mail") == {"v": 2}
    await store.delete("mail", entry())
    clock.now += 3
    with pytest.raises(NodeError, match="there is no credential 'mail'"):
        await credentials.resolve("mail")


async def test_one_that_is_new_is_seen_at_once(store: CredentialStore) -> None:
    source = StoredCredentials(store)
    assert await source.find("mail") is None
    await store.create("mail", "Mail", "smtp", {"v": 1}, "ada", entry())
    assert await source.find("mail") == {"v": 1}


class Away:
    """A database that comes and goes."""

    dialect = "postgres"

    def __init__(self, database: Database) -> None:
        self._database = database
        self.away = False

    async def fetch_one(self, sql: str, *args: Any) -> Any:
        if self.away:
            raise InfrastructureError("no route")
        return await self._database.fetch_one(sql, *args)


async def test_while_the_store_is_out_of_reach_what_is_known_is_used(
    store: CredentialStore, tables: Database
) -> None:
    await store.create("mail", "Mail", "smtp", {"v": 1}, "ada", entry())
    away, clock = Away(tables), Moment()
    source = StoredCredentials(CredentialStore(away, Vault([OLD])), clock=clock)  # type: ignore[arg-type]
    assert await source.find("mail") == {"v": 1}
    away.away = True
    clock.now += 60
    assert await source.find("mail") == {"v": 1}
    with pytest.raises(CredentialsError, match="out of reach"):
        await source.find("other")
    with pytest.raises(NodeError) as raised:
        await Credentials(store=source).resolve("other")
    assert raised.value.retryable
    clock.now += 300
    with pytest.raises(CredentialsError):
        await source.find("mail")


async def test_a_worker_may_be_there_before_the_first_master(database: Database) -> None:
    source = await open_source(database, settings(OLD))
    assert source is not None
    assert await source.find("web") is None
    store = await open_store(database, settings(OLD))
    assert store is not None
    await store.create("web", "Web", "http", DATA, "ada", entry())
    assert await source.find("web") == DATA
