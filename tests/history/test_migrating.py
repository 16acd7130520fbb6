"""Tables that grow with the program."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.errors import RuneError
from rune.history import Database, open_database
from rune.history.migrating import Migration, TooNew, migrate, migrations

TABLE = "-- A comment; with a semicolon;\nCREATE TABLE one (a TEXT) /* sqlite: STRICT */;\n"
FIRST = Migration(1, "first", TABLE)
SECOND = Migration(2, "second", "ALTER TABLE one ADD COLUMN b TEXT;\nINSERT INTO one VALUES ('x', 'y;z');\n")


async def test_each_migration_is_carried_out_once(database: Database) -> None:
    assert await migrate(database, [FIRST]) == [FIRST]
    assert await migrate(database, [FIRST, SECOND]) == [SECOND]
    assert await migrate(database, [FIRST, SECOND]) == []
    row = await database.fetch_one("SELECT * FROM one")
    assert row is not None
    assert (row["a"], row["b"]) == ("x", "y;z")


async def test_a_migration_that_fails_leaves_nothing(database: Database) -> None:
    bad = Migration(2, "bad", "CREATE TABLE two (a TEXT);\nCREATE NONSENSE;\n")
    with pytest.raises(RuneError):
        await migrate(database, [FIRST, bad])
    assert await migrate(database, [FIRST, SECOND]) == [SECOND]
    with pytest.raises(RuneError):
        await database.fetch("SELECT * FROM two")


async def test_masters_that_start_together_migrate_once(address: str) -> None:
    if address.startswith("sqlite"):
        async with open_database(address) as database:
            done = await asyncio.gather(*(migrate(database) for _ in range(4)))
    else:
        done = await asyncio.gather(*(_opened(address) for _ in range(4)))
    assert sum(map(len, done)) == len(migrations())


async def _opened(address: str) -> list[Migration]:
    async with open_database(address) as database:
        return await migrate(database)


async def test_a_database_of_a_newer_program_is_refused(database: Database) -> None:
    await migrate(database, [FIRST, SECOND])
    with pytest.raises(TooNew, match="newer Rune: it has migration 2, and this one knows 1"):
        await migrate(database, [FIRST])


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))
