"""The audit log, on both databases."""

from __future__ import annotations

import pytest

from rune.history import Database
from rune.history.audit import AuditLog, Entry
from rune.history.migrating import migrate


@pytest.fixture
async def log(database: Database) -> AuditLog:
    await migrate(database)
    return AuditLog(database)


async def test_an_entry_comes_back_as_it_was(log: AuditLog) -> None:
    entry = Entry.new(
        1.5,
        "execution.cancel",
        account_id="user_1",
        account="ada",
        via="session",
        address="::1",
        object="exec_1",
        outcome="denied",
        details={"reason": 'it is "late"'},
    )
    await log.add(entry)
    assert (await log.list(10)).items == [entry]


async def test_the_newest_comes_first_in_pages_that_do_not_shift(log: AuditLog) -> None:
    for n in range(5):
        await log.add(Entry.new(float(n), f"a{n}"))
    first = await log.list(2)
    await log.add(Entry.new(9.0, "a9"))
    second = await log.list(2, first.next)
    third = await log.list(2, second.next)
    assert [e.action for page in (first, second, third) for e in page.items] == ["a4", "a3", "a2", "a1", "a0"]
    assert third.next is None


async def test_entries_are_found_by_what_they_are_about(log: AuditLog) -> None:
    await log.add(Entry.new(1.0, "user.create", object="x", account="ada"))
    await log.add(Entry.new(2.0, "user_create", object="y", account="eve"))
    await log.add(Entry.new(3.0, "token.create", object="x", account="eve"))

    async def found(**asked: str) -> list[float]:
        return [entry.at for entry in (await log.list(10, **asked)).items]

    assert await found(action="user_") == [2.0]
    assert await found(action="user.") == [1.0]
    assert await found(object="x") == [3.0, 1.0]
    assert await found(object="x", account="Eve") == [3.0]
    assert await found(action="%") == []


async def test_an_entry_is_written_with_what_it_tells_of(log: AuditLog, database: Database) -> None:
    insert = ("INSERT INTO vault (id, sealed) VALUES ($1, $2)", [(7, b"")])
    await database.write(
        insert, Entry.new(1.0, "yes").statement("EXISTS (SELECT 1 FROM vault WHERE id = $1)", 7)
    )
    await database.write(Entry.new(2.0, "no").statement("EXISTS (SELECT 1 FROM vault WHERE id = $1)", 8))
    assert [entry.action for entry in (await log.list(10)).items] == ["yes"]
