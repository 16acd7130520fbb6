"""Accounts, sessions and tokens, on both databases."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from rune.core.errors import ConflictError
from rune.history import Database
from rune.history.accounts import ADMIN, Account, Accounts, LastAdmin
from rune.history.audit import AuditLog, Entry
from rune.history.keys import Sessions, Tokens
from rune.history.migrating import migrate

VIEWER, EDITOR = 1, 3


class Clock:
    """A time that tests move."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def tables(database: Database) -> Database:
    await migrate(database)
    return database


@pytest.fixture
def accounts(tables: Database, clock: Clock) -> Accounts:
    return Accounts(tables, clock)


_ticks = count(1)


def entry(action: str = "user.test", **fields: Any) -> Entry:
    return Entry.new(next(_ticks), action, **fields)


async def told(database: Database) -> list[str]:
    return [each.action for each in (await AuditLog(database).list(50)).items]


async def made(accounts: Accounts, name: str, role: int = ADMIN) -> Account:
    return await accounts.create(name, "hash", role, entry("user.create"))


async def test_an_account_is_found_by_its_name_in_any_case(accounts: Accounts) -> None:
    account = await made(accounts, "Ada", EDITOR)
    assert (account.name, account.role, account.disabled) == ("ada", EDITOR, False)
    assert await accounts.password("ADA") == (account, "hash")
    assert await accounts.password("eve") is None
    assert await accounts.get(account.id) == account


async def test_a_name_is_taken_once_and_only_then_told(accounts: Accounts, tables: Database) -> None:
    await made(accounts, "ada")
    with pytest.raises(ConflictError):
        await made(accounts, "ADA")
    assert await told(tables) == ["user.create"]


async def test_accounts_come_in_pages(accounts: Accounts) -> None:
    for name in ("b", "c", "a"):
        await made(accounts, name)
    first = await accounts.list(2)
    rest = await accounts.list(2, first.next)
    assert [account.name for account in (*first.items, *rest.items)] == ["a", "b", "c"]
    assert rest.next is None


@pytest.mark.parametrize("change", [{"role": EDITOR}, {"disabled": True}, None])
async def test_the_last_admin_stays(
    accounts: Accounts, tables: Database, change: dict[str, Any] | None
) -> None:
    admin = await made(accounts, "ada")
    await made(accounts, "bob", EDITOR)
    disabled = await made(accounts, "eve")
    await accounts.change(disabled.id, entry("eve.disabled"), disabled=True)
    lost = entry("lost")
    trying = accounts.delete(admin.id, lost) if change is None else accounts.change(admin.id, lost, **change)
    with pytest.raises(LastAdmin):
        await trying
    assert await accounts.get(admin.id) == admin
    assert "lost" not in await told(tables)


async def test_an_admin_who_is_not_the_last_may_go(accounts: Accounts, tables: Database) -> None:
    ada, eve = await made(accounts, "ada"), await made(accounts, "eve")
    changed = await accounts.change(ada.id, entry("user.change"), role=VIEWER)
    assert changed is not None
    assert changed.role == VIEWER
    assert await accounts.delete(ada.id, entry("user.delete")) == changed
    assert await accounts.delete(ada.id, entry("again")) is None
    assert await accounts.change(ada.id, entry("again"), role=ADMIN) is None
    assert await accounts.get(eve.id) is not None
    assert await told(tables) == ["user.delete", "user.change", "user.create", "user.create"]


async def test_two_admins_cannot_remove_each_other_at_the_same_time(accounts: Accounts) -> None:
    for n in range(5):
        ada, eve = await made(accounts, f"ada{n}"), await made(accounts, f"eve{n}")
        others = [each for each in (await accounts.list(50)).items if each.id not in (ada.id, eve.id)]
        for other in others:
            await accounts.delete(other.id, entry())
        await asyncio.gather(
            accounts.delete(ada.id, entry()),
            accounts.change(eve.id, entry(), disabled=True),
            return_exceptions=True,
        )
        left = (await accounts.list(50)).items
        assert [each for each in left if each.role == ADMIN and not each.disabled]


async def test_the_first_account_is_made_once(accounts: Accounts, tables: Database, clock: Clock) -> None:
    await accounts.expect("setup", 10)
    assert await accounts.expects("setup")
    assert await accounts.create_first("ada", "hash", entry("wrong"), setup="other") is None
    clock.now += 11
    assert not await accounts.expects("setup")
    assert await accounts.create_first("ada", "hash", entry("late"), setup="setup") is None
    await accounts.expect("new", 10)
    both = await asyncio.gather(
        *(accounts.create_first(name, "hash", entry("first"), setup="new") for name in ("ada", "eve"))
    )
    assert [account.role for account in both if account] == [ADMIN]
    assert not await accounts.expects("new")
    assert await accounts.create_first("bob", "hash", entry("second")) is None
    assert await told(tables) == ["first"]


# --- sessions ----------------------------------------------------------------------------------------------


@pytest.fixture
def sessions(tables: Database, clock: Clock) -> Sessions:
    return Sessions(tables, idle=100, longest=1000, clock=clock)


async def test_a_session_lives_as_long_as_it_is_used(
    accounts: Accounts, sessions: Sessions, clock: Clock
) -> None:
    ada = await made(accounts, "ada")
    await sessions.begin("h", ada, "127.0.0.1", "browser")
    for _ in range(9):
        clock.now += 99
        bearer = await sessions.find("h")
        assert bearer is not None
        assert (bearer.account, bearer.name, bearer.role) == (ada.id, "ada", ADMIN)
    clock.now += 101
    assert await sessions.find("h") is None


async def test_a_session_ends_in_any_case(accounts: Accounts, sessions: Sessions, clock: Clock) -> None:
    await sessions.begin("h", await made(accounts, "ada"), "", "")
    for _ in range(11):
        clock.now += 90
        await sessions.find("h")
    assert await sessions.find("h") is not None
    clock.now += 11
    assert await sessions.find("h") is None


async def test_a_new_session_takes_the_place_of_the_old_one(accounts: Accounts, sessions: Sessions) -> None:
    ada = await made(accounts, "ada")
    await sessions.begin("old", ada, "", "")
    await sessions.begin("other", ada, "", "")
    await sessions.begin("new", ada, "", "", old="old")
    assert [await sessions.find(hash) is not None for hash in ("old", "other", "new")] == [False, True, True]
    await sessions.end("other", entry())
    assert await sessions.find("other") is None
    await sessions.end_all(ada.id, entry())
    assert await sessions.find("new") is None


async def test_a_new_password_ends_the_other_sessions(accounts: Accounts, sessions: Sessions) -> None:
    ada, eve = await made(accounts, "ada"), await made(accounts, "eve")
    for hash, account in (("a", ada), ("b", ada), ("e", eve)):
        await sessions.begin(hash, account, "", "")
    await accounts.change(ada.id, entry(), password="new", keep="a")
    assert [await sessions.find(hash) is not None for hash in "abe"] == [True, False, True]
    await accounts.change(ada.id, entry(), disabled=True)
    assert await sessions.find("a") is None
    await made(accounts, "bob")
    await accounts.delete(eve.id, entry())
    assert await sessions.find("e") is None


# --- tokens ------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(tables: Database, clock: Clock) -> Tokens:
    return Tokens(tables, clock)


async def test_a_token_can_do_no_more_than_its_owner_can_now(accounts: Accounts, tokens: Tokens) -> None:
    await made(accounts, "root")
    ada = await made(accounts, "ada")
    for role in (VIEWER, ADMIN):
        await tokens.create(f"h{role}", ada.id, "ci", role, None, entry(object=Tokens.new_id()))

    async def roles() -> list[int | None]:
        found = [await tokens.find(f"h{role}") for role in (VIEWER, ADMIN)]
        return [bearer.role if bearer else None for bearer in found]

    assert await roles() == [VIEWER, ADMIN]
    await accounts.change(ada.id, entry(), role=EDITOR)
    assert await roles() == [VIEWER, EDITOR]
    await accounts.change(ada.id, entry(), disabled=True)
    assert await roles() == [None, None]


async def test_a_token_expires_and_its_use_is_noted(accounts: Accounts, tokens: Tokens, clock: Clock) -> None:
    ada = await made(accounts, "ada")
    token = await tokens.create("h", ada.id, "ci", VIEWER, clock.now + 100, entry(object="token_1"))
    assert (token.id, token.account, token.used_at) == ("token_1", "ada", None)
    assert await tokens.find("h") is not None
    used = await tokens.get("token_1")
    assert used is not None
    assert used.used_at == clock.now
    clock.now += 100
    assert await tokens.find("h") is None


async def test_one_revokes_one_s_own_tokens(accounts: Accounts, tokens: Tokens, tables: Database) -> None:
    ada, eve = await made(accounts, "ada"), await made(accounts, "eve")
    await tokens.create("h", ada.id, "ci", VIEWER, None, entry(object="token_1"))
    assert not await tokens.revoke("token_1", eve.id, entry("stolen"))
    assert [token.id for token in (await tokens.list(ada.id, 10)).items] == ["token_1"]
    assert (await tokens.list(eve.id, 10)).items == []
    assert await tokens.revoke("token_1", ada.id, entry("token.revoke"))
    assert await tokens.find("h") is None
    assert "stolen" not in await told(tables)
