"""Group commit: what is asked together is committed together, and what fails leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune.backends.sqlite import SqliteBroker, SqliteState, database, open_sqlite
from rune.core.errors import InfrastructureError
from rune.core.operations import Arm, Commit, Open, Record, Settle, Timer
from tests.backends.test_broker_ports import Worker, completion, task

E = "exec_1"

Opened = tuple[SqliteBroker, SqliteState]


@pytest.fixture(params=["normal", "full"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_sqlite(str(tmp_path / "rune.db"), synchronous=request.param) as parts:
        yield parts


def traced(state: SqliteState) -> list[str]:
    """The statements that are carried out from now on."""
    statements: list[str] = []
    state._database.connection.set_trace_callback(statements.append)
    return statements


async def test_the_setting_decides_how_safe_a_commit_is(tmp_path: Path) -> None:
    for synchronous, level in (("normal", 1), ("full", 2)):
        async with open_sqlite(str(tmp_path / "rune.db"), synchronous=synchronous) as (_, state):
            connection = state._database.connection
            assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_what_is_asked_in_one_turn_shares_a_transaction(opened: Opened) -> None:
    broker, state = opened
    statements = traced(state)
    await asyncio.gather(
        broker.publish([task("a")], [completion(E)]),
        state.put(E, {"h": b"1"}),
        *(state.apply(E, [Commit(f"s{i}", (), [Record(b"1")])]) for i in range(20)),
    )
    assert statements.count("COMMIT") == 1


async def test_a_batch_writes_its_barrier_once(opened: Opened) -> None:
    _, state = opened
    await state.apply(E, [Commit("split", (), [Open("b", 300, 1, b"release")])])
    statements = traced(state)
    await state.apply(E, [Commit(f"s{i}", (("b", i),), [Settle(-1, b"1")]) for i in range(256)])
    assert sum("INTO tally" in statement for statement in statements) == 1
    assert sum("FROM barrier" in statement for statement in statements) == 0


async def test_what_piles_up_during_a_commit_shares_the_next(tmp_path: Path) -> None:
    async with open_sqlite(str(tmp_path / "rune.db"), synchronous="full") as (_, state):
        statements = traced(state)
        asked = [asyncio.ensure_future(state.put(E, {"first": b"1"}))]
        while state._database._committing is None:
            await asyncio.sleep(0)
        asked += [asyncio.ensure_future(state.put(E, {f"h{i}": b"1"})) for i in range(10)]
        found = asyncio.ensure_future(state.get(E, ["first", "h9"]))
        await asyncio.gather(*asked)
        assert statements.count("COMMIT") == 2
        assert await found == {"first": b"1", "h9": b"1"}


async def test_a_bad_call_fails_alone(opened: Opened) -> None:
    broker, state = opened
    bad = Commit("bad", (), [Record(b"1"), Arm(Timer("t", 5.0, b"task")), Open("b", 2**80, 1, b"release")])
    results = await asyncio.gather(
        state.put(E, {"h": b"1"}),
        state.apply(E, [bad]),
        broker.publish([task("a")]),
        state.apply(E, [Commit("good", (), [Record(b"1")])]),
        return_exceptions=True,
    )
    assert [isinstance(result, OverflowError) for result in results] == [False, True, False, False]
    assert await state.get(E, ["h"]) == {"h": b"1"}
    assert await state.next_due() is None
    (lease,) = await state.lease(E, [("bad", ())], 1, 0.0)
    assert lease.record is None
    assert await Worker(broker).names(1) == ["a"]


async def test_a_caller_who_gives_up_does_not_stop_the_others(opened: Opened) -> None:
    _, state = opened
    first = asyncio.ensure_future(state.put(E, {"a": b"1"}))
    second = asyncio.ensure_future(state.put(E, {"b": b"1"}))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert "b" in await state.get(E, ["a", "b"])


# --- a full disk -------------------------------------------------------------------------------------------


def fill_disk(state: SqliteState) -> None:
    """Let the file not grow by a page more."""
    connection = state._database.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")


def free_space(state: SqliteState) -> None:
    state._database.connection.execute("PRAGMA max_page_count = 1000000")


async def test_a_full_disk_fails_all_that_shared_the_transaction(opened: Opened) -> None:
    broker, state = opened
    await state.apply(E, [Commit("split", (), [Open("b", 3, 1, b"release")])])
    fill_disk(state)
    results = await asyncio.gather(
        state.apply(E, [Commit("s0", (("b", 0),), [Settle(-1, b"0")])]),
        state.put(E, {"h": b"x" * 100_000}),
        broker.publish([task("a")], [completion(E)]),
        return_exceptions=True,
    )
    path = state._database.path
    for result in results:
        assert isinstance(result, InfrastructureError)
        assert "database or disk is full" in str(result)
        assert f"nothing is lost; free space and run `rune resume --db {path}`" in str(result)


async def test_after_a_full_disk_it_goes_on_as_if_nothing_had_been_asked(opened: Opened) -> None:
    broker, state = opened
    worker = Worker(broker)
    await broker.publish([task("a"), task("b")])
    delivery = await worker.take()
    await state.apply(E, [Commit("split", (), [Open("b", 2, 1, b"release")])])
    fill_disk(state)
    with pytest.raises(InfrastructureError):
        await asyncio.gather(
            state.apply(E, [Commit("s0", (("b", 0),), [Settle(-1, b"0")])]),
            broker.finish(delivery, [task("c")]),
            state.put(E, {"h": b"x" * 100_000}),
        )
    assert await state.slots(E, "b", 0, 10) == []
    free_space(state)
    (answer,) = await state.apply(E, [Commit("s0", (("b", 0),), [Settle(-1, b"0")])])
    assert answer.progress is not None
    assert answer.progress.processed == 1
    await broker.finish(delivery, [task("c")])
    assert await worker.names(2) == ["b", "c"]


async def test_whoever_waits_for_deliveries_hears_of_a_full_disk(opened: Opened) -> None:
    broker, state = opened
    await broker.publish([task("a")])
    state._database.connection.execute("PRAGMA query_only = on")
    with pytest.raises(InfrastructureError, match="readonly"):
        await Worker(broker).take()


async def test_another_program_that_writes_is_named_as_the_trouble(tmp_path: Path) -> None:
    path = str(tmp_path / "rune.db")
    async with open_sqlite(path) as (_, state):
        state._database.connection.execute("PRAGMA busy_timeout = 10")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InfrastructureError, match="locked; another program is writing"):
            await state.put(E, {"h": b"1"})
        other.close()
        await state.put(E, {"h": b"1"})


# --- the log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_the_log_does_not_grow_without_end(
    tmp_path: Path, synchronous: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_LOG_STEP", 1 << 20)
    monkeypatch.setattr(database, "_LOG_LIMIT", 4 << 20)
    path = str(tmp_path / "rune.db")
    largest = 0
    async with open_sqlite(path, synchronous=synchronous) as (broker, state):
        for i in range(400):
            # No pause in which a checkpoint could catch up by itself.
            await asyncio.gather(*(state.put(f"exec_{i}_{j}", {"h": os.urandom(20_000)}) for j in range(5)))
            largest = max(largest, os.stat(f"{path}-wal").st_size)
        assert largest < 16 << 20
        assert len(await state.live()) == 2000
        assert not broker.dead
    assert os.listdir(tmp_path) == ["rune.db"]


# --- a long queue ------------------------------------------------------------------------------------------


async def test_only_the_next_messages_are_in_memory(tmp_path: Path) -> None:
    async with open_sqlite(str(tmp_path / "rune.db")) as (broker, _):
        for at in range(0, 20_000, 2000):
            await broker.publish([task(f"n{i}") for i in range(at, at + 2000)])
        assert len(broker._queue.ready) <= 2048
        worker = Worker(broker)
        for i in range(3000):
            delivery = await worker.take()
            assert delivery.task.current_node == f"n{i}"
            await broker.finish(delivery)
        assert len(broker._queue.ready) <= 2048
        # One that comes before everything else is not left to the end.
        await broker.publish([task("urgent", priority=1)])
        assert await worker.names(2) == ["urgent", "n3000"]


async def test_large_messages_take_up_the_room_of_many(tmp_path: Path) -> None:
    async with open_sqlite(str(tmp_path / "rune.db")) as (broker, _):
        large = Raw(msgspec.json.encode("x" * 1_000_000))
        tasks = [msgspec.structs.replace(task(f"n{i}"), accumulated_context={"x": large}) for i in range(40)]
        await broker.publish(tasks)
        assert len(broker._queue.ready) < 20
        assert await Worker(broker).names(40) == [f"n{i}" for i in range(40)]


async def test_priorities_survive_the_end_of_memory(tmp_path: Path) -> None:
    async with open_sqlite(str(tmp_path / "rune.db")) as (broker, _):
        await broker.publish([task(f"low{i}", priority=-1) for i in range(3000)])
        await broker.publish([task(f"high{i}", priority=1) for i in range(3000)])
        await broker.publish([task(f"mid{i}") for i in range(10)])
        worker = Worker(broker)
        seen: list[Any] = []
        for _ in range(6010):
            delivery = await worker.take()
            seen.append(delivery.task.current_node)
            await broker.finish(delivery)
        assert seen == [
            *(f"high{i}" for i in range(3000)),
            *(f"mid{i}" for i in range(10)),
            *(f"low{i}" for i in range(3000)),
        ]
