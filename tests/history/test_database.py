"""Plain SQL, on both databases alike."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.errors import ConflictError, InfrastructureError, RuneError
from rune.history import Database, Statement, open_database
from rune.history.database import Row
from tests.servers.postgres import postgres_server

THINGS = Statement("CREATE TABLE thing (id TEXT PRIMARY KEY, n INTEGER, at DOUBLE PRECISION, data BYTEA)")
INSERT = "INSERT INTO thing (id, n) VALUES ($1, $2) RETURNING id"


async def ids(database: Database) -> list[str]:
    """What is there."""
    return [row["id"] for row in await database.fetch("SELECT id FROM thing ORDER BY id")]


async def test_what_is_written_is_read_by_name(database: Database) -> None:
    await database.write(THINGS)
    insert = "INSERT INTO thing VALUES ($1, $2, $3, $4)"
    await database.write(Statement(insert, [("a", 1, 1.5, b"\0\xff"), ("b", None, None, None)]))
    row = await database.fetch_one("SELECT * FROM thing WHERE n = $2 AND id = $1", "a", 1)
    assert row is not None
    assert (row["id"], row["n"], row["at"], row["data"]) == ("a", 1, 1.5, b"\0\xff")
    assert await ids(database) == ["a", "b"]
    assert await database.fetch_one("SELECT * FROM thing WHERE id = $1", "c") is None


async def test_a_write_returns_what_each_statement_returned(database: Database) -> None:
    await database.write(THINGS)
    one, several, none, nothing = await database.write(
        (INSERT, [("a", 1)]),
        (INSERT, [("b", 2), ("c", 3)]),
        (INSERT, []),
        ("DELETE FROM thing WHERE id = $1 RETURNING id", [("x",)]),
    )
    assert [row["id"] for row in one] == ["a"]
    assert [row["id"] for row in several] == ["b", "c"]
    assert (none, nothing) == ([], [])


async def test_a_write_that_conflicts_leaves_nothing(database: Database) -> None:
    await database.write(THINGS, (INSERT, [("a", 1)]))
    with pytest.raises(ConflictError):
        await database.write((INSERT, [("b", 1)]), (INSERT, [("a", 2)]))
    assert await ids(database) == ["a"]


async def test_one_bad_write_does_not_touch_others_made_at_the_same_time(database: Database) -> None:
    await database.write(THINGS)
    answers: list[list[list[Row]] | BaseException] = await asyncio.gather(
        database.write((INSERT, [("a", 1)])),
        database.write((INSERT, [("x", 1)]), ("INSERT INTO nowhere VALUES (1)", [()])),
        database.write((INSERT, [("b", object())])),
        database.write((INSERT, [("c", 3)])),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers[1:3]] == [RuneError, RuneError]
    assert await ids(database) == ["a", "c"]


async def test_writes_that_collide_all_get_through(database: Database) -> None:
    await database.write(THINGS, (INSERT, [("a", 0), ("b", 0)]))
    add = "UPDATE thing SET n = n + 1 WHERE id = $1"
    forth, back = [(add, [("a",)]), (add, [("b",)])], [(add, [("b",)]), (add, [("a",)])]
    await asyncio.gather(*(database.write(*(back if i % 2 else forth)) for i in range(20)))
    assert [row["n"] for row in await database.fetch("SELECT n FROM thing")] == [20, 20]


async def test_a_sentence_it_does_not_understand(database: Database) -> None:
    with pytest.raises(RuneError, match="does not understand"):
        await database.fetch("SELEKT 1")


async def test_a_server_that_is_away_and_comes_back() -> None:
    with postgres_server() as server:
        async with open_database(server.url()) as database:
            await database.write(THINGS, (INSERT, [("a", 1)]))
            server.stop()
            with pytest.raises(InfrastructureError, match="out of reach"):
                await database.write((INSERT, [("b", 2)]))
            with pytest.raises(InfrastructureError, match="out of reach"):
                await database.fetch("SELECT 1")
            server.start()
            await database.write((INSERT, [("c", 3)]))
            assert await ids(database) == ["a", "c"]


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(InfrastructureError, match="out of reach"):
        async with open_database("postgresql://nobody@127.0.0.1:1/none"):
            pass
