"""What was answered is there after a kill; what died with the process is void at once."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rune.backends.sqlite import SqliteBroker, SqliteState, open_sqlite
from rune.core.operations import Arm, Commit, Lease, Open, Record, Settle, Timer
from rune.core.outcome import Policy
from rune.core.ports import Delivery
from tests.backends.conftest import Clock
from tests.backends.test_broker_ports import Worker, completion, task

E = "exec_1"


@pytest.fixture
def killed(tmp_path: Path) -> Callable[[], str]:
    """The files as they are now, which is what a process that is killed leaves behind."""

    def copy() -> str:
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"rune.db{suffix}", tmp_path / f"killed.db{suffix}")
        return str(tmp_path / "killed.db")

    return copy


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "rune.db")


async def taken(broker: SqliteBroker, count: int, prefetch: int = 100) -> list[Delivery]:
    worker = Worker(broker, prefetch)
    return [await worker.take() for _ in range(count)]


# --- messages ----------------------------------------------------------------------------------------------


async def test_unfinished_messages_are_delivered_again_in_order(path: str, killed: Callable[[], str]) -> None:
    async with open_sqlite(path) as (broker, _):
        await broker.publish([task("a"), task("b"), task("c", priority=1), task("d")])
        first, second = await taken(broker, 2, prefetch=2)
        assert [first.task.current_node, second.task.current_node] == ["c", "a"]
        await broker.finish(first, [task("e")])
        after = killed()
    async with open_sqlite(after) as (broker, _):
        again = await taken(broker, 4)
        assert [d.task.current_node for d in again] == ["a", "b", "d", "e"]
        # The one that a worker had; and `b`, which the finish of another had made room for.
        assert [d.redelivered for d in again] == [True, True, False, False]
        await broker.publish([task("f")])
        (last,) = await taken(broker, 1)
        assert last.task.current_node == "f"


async def test_a_message_that_goes_out_at_once_is_known_to_be_out(
    path: str, killed: Callable[[], str]
) -> None:
    async with open_sqlite(path) as (broker, _):
        worker = Worker(broker)
        waiting = asyncio.ensure_future(worker.take())
        await asyncio.sleep(0.01)
        await broker.publish([task("a")])
        await waiting
        after = killed()
    async with open_sqlite(after) as (broker, _):
        (again,) = await taken(broker, 1)
        assert again.redelivered


async def test_what_nobody_took_is_not_redelivered_after_a_close(path: str) -> None:
    async with open_sqlite(path) as (broker, _):
        await broker.publish([task("a"), task("b")])
        await taken(broker, 1)
    async with open_sqlite(path) as (broker, _):
        assert [d.redelivered for d in await taken(broker, 2)] == [True, False]


async def test_what_was_given_back_is_not_redelivered(path: str, killed: Callable[[], str]) -> None:
    async with open_sqlite(path) as (broker, _):
        await broker.publish([task("a")])
        worker = Worker(broker)
        delivery = await worker.take()
        await worker.deliveries.aclose()  # type: ignore[attr-defined]
        await broker.give_back(delivery)
        after = killed()
    async with open_sqlite(after) as (broker, _):
        (again,) = await taken(broker, 1)
        assert not again.redelivered


async def test_a_retry_survives(path: str, killed: Callable[[], str], clock: Clock) -> None:
    async with open_sqlite(path, clock=clock) as (broker, _):
        await broker.publish([task("a"), task("b")])
        first, _ = await taken(broker, 2)
        await broker.retry(first, 25)
        after = killed()
    async with open_sqlite(after, clock=clock) as (broker, _):
        (second,) = await taken(broker, 1)
        assert second.task.current_node == "b"
        clock.advance(25)
        await broker.publish([task("c")])
        later = await taken(broker, 2)
        assert [(d.task.current_node, d.retries) for d in later] == [("a", 1), ("c", 0)]


async def test_completions_stay_until_they_are_acknowledged(path: str, killed: Callable[[], str]) -> None:
    async with open_sqlite(path) as (broker, _):
        await broker.publish([], [completion("exec_1"), completion("exec_2"), completion("exec_2")])
        await broker.completed(completion("exec_1"))
        after = killed()
    async with open_sqlite(after) as (broker, _):
        completions = broker.completions()
        assert await anext(completions) == completion("exec_2")
        await broker.completed(completion("exec_2"))
        await broker.publish([], [completion("exec_3")])
        assert await anext(completions) == completion("exec_3")


async def test_an_undecodable_message_becomes_a_dead_letter(path: str) -> None:
    async with open_sqlite(path) as (broker, _):
        await broker.publish([task("a"), task("b")], [completion("exec_1")])
    connection = sqlite3.connect(path)
    connection.execute(
        "UPDATE message SET body = ? WHERE id = (SELECT min(id) FROM message)", (b"{nonsense",)
    )
    connection.execute("UPDATE completion SET body = ?", (b"[]",))
    connection.commit()
    connection.close()
    async with open_sqlite(path) as (broker, _):
        (good,) = await taken(broker, 1)
        assert good.task.current_node == "b"
        await broker.publish([], [completion("exec_2")])
        assert await anext(broker.completions()) == completion("exec_2")
        first, second = broker.dead
        assert "not a NodeExecutionMessage" in first.reason
        assert first.body == b"{nonsense"
        assert "not a CompletionMessage" in second.reason


async def test_dead_letters_survive(path: str) -> None:
    async with open_sqlite(path) as (broker, _):
        await broker.publish([task("a")])
        (delivery,) = await taken(broker, 1)
        await broker.dead_letter(delivery, "no sense")
    async with open_sqlite(path) as (broker, _):
        assert [(letter.reason, letter.node) for letter in broker.dead] == [("no sense", "a")]


# --- state -------------------------------------------------------------------------------------------------


async def test_a_lease_dies_with_its_process_but_the_start_counts(
    path: str, killed: Callable[[], str], clock: Clock
) -> None:
    async with open_sqlite(path, clock=clock) as (_, state):
        assert await state.lease(E, [("s", ())], 1, clock.now + 1000) == [Lease(fence=1)]
        after = killed()
    async with open_sqlite(after, clock=clock) as (_, state):
        assert await state.lease(E, [("s", ())], 1, clock.now + 1000) == [Lease(fence=2)]
        assert not await state.renew(E, "s", 1, clock.now + 1000)


async def test_a_claim_dies_with_its_process(path: str, killed: Callable[[], str], clock: Clock) -> None:
    async with open_sqlite(path, clock=clock) as (_, state):
        timers = [Arm(Timer("t", clock.now + 1, b"task")), Arm(Timer("u", None, b"task"))]
        await state.apply(E, [Commit("s", (), timers)])
        clock.advance(2)
        await state.claim(clock.now, 10, clock.now + 30)
        clock.advance(31)
        await state.claim(clock.now, 10, clock.now + 30)
        after = killed()
    async with open_sqlite(after, clock=clock) as (_, state):
        assert await state.next_due() == clock.now - 32
        assert [t.id for t in await state.claim(clock.now, 10, clock.now + 30)] == ["t"]


async def test_everything_of_a_barrier_survives(path: str, killed: Callable[[], str], clock: Clock) -> None:
    opening = Open("b", 4, 1, b"r" * 50_000, Policy(tolerated=3), window=2, published=2, refill=b"more")
    async with open_sqlite(path, clock=clock) as (_, state):
        await state.apply(E, [Commit("split", (), [opening])])
        first = await state.apply(E, [Commit("s0", (("b", 0),), [Settle(-1, b"0", folds=(0.1, 2**70))])])
        await state.apply(E, [Commit("s1", (("b", 1),), [Settle(-1, error=b'"no"')])])
        after = killed()
    async with open_sqlite(after, clock=clock) as (_, state):
        (again,) = await state.apply(E, [Commit("s0", (("b", 0),), [Settle(-1, b"0")])])
        assert (again.gone, again.refill, again.refill_task) == (True, first[0].refill, b"more")
        for i in (2, 3):
            (answer,) = await state.apply(
                E, [Commit(f"s{i}", (("b", i),), [Settle(-1, b"1", folds=(0.2, 1))])]
            )
        assert answer.release == b"r" * 50_000
        view = await state.barrier(E, "b")
        assert view is not None
        assert (view.succeeded, view.failed, view.first_error) == (3, 1, b'"no"')
        assert view.folds == ((0.5, 3, 0.1, 0.2), (2**70 + 2, 3, 1, 2**70))


async def test_tombstones_and_what_they_keep_go_when_their_time_has_passed(path: str, clock: Clock) -> None:
    async with open_sqlite(path, clock=clock) as (_, state):
        for execution in ("exec_1", "exec_2"):
            await state.put(execution, {"h": b"1"})
        await state.bury("exec_1", ["h"], clock.now + 10)
        await state.bury("exec_2", ["h"], clock.now + 1000)
    clock.advance(10)
    async with open_sqlite(path, clock=clock) as (_, state):
        assert (await state.news())[0] == {"exec_2"}
        assert await state.get("exec_1", ["h"]) == {}
        assert await state.get("exec_2", ["h"]) == {"h": b"1"}
        clock.advance(1000)
        await state.bury("exec_3", [], clock.now + 1000)
        assert (await state.news())[0] == {"exec_3"}


async def test_burial_leaves_no_row_but_the_tombstone(path: str, clock: Clock) -> None:
    async with open_sqlite(path, clock=clock) as (broker, state):
        tables = [
            name
            for (name,) in broker._database.connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        ]
        await _live_a_little(state, clock)
        await state.bury(E, [], clock.now + 10)
        left = {
            table: count
            for table in tables
            if (count := broker._database.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        }
        assert left == {"execution": 1}


async def _live_a_little(state: SqliteState, clock: Clock) -> None:
    await state.put(E, {"h": b"1"})
    timer = Timer("t", clock.now + 5, b"task")
    opening = Open("b", 9, 2, b"release", window=2, published=2, timer=timer)
    await state.apply(E, [Commit("split", (), [Record(b"1"), Settle(+1), opening])])
    inside = (("b", 0),)
    await state.apply(E, [Commit("inner", inside, [Record(b"1"), Open("i", 2, 1, b"release")])])
    await state.apply(E, [Commit("s1", (("b", 1),), [Settle(-1, b"1")])])
    await state.apply(E, [Commit("s1b", (("b", 1),), [Settle(-1, b"1")])])
    await state.pause(E)
    await state.park(E, "p", b"task")


# --- for real ----------------------------------------------------------------------------------------------

WORKER = """
import asyncio, sys
from msgspec import Raw
from rune.backends.sqlite import open_sqlite
from rune.core.messages import Task
from rune.core.operations import Commit, Record

def task(number):
    return Task(workflow_id="w", execution_id="e", current_node=str(number), accumulated_context={})

async def main():
    async with open_sqlite(sys.argv[1], synchronous=sys.argv[2]) as (broker, state):
        number = 0
        await broker.publish([task(0)])
        async for delivery in broker.deliveries(10):
            number += 1
            await state.apply("e", [Commit(f"s{number}", (), [Record(b"%d" % number)])])
            await broker.finish(delivery, [task(number)])
            print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_kill_minus_nine_loses_nothing_that_was_answered(path: str, synchronous: str) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, path, synchronous], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    lines = [worker.stdout.readline() for _ in range(200)]
    worker.send_signal(signal.SIGKILL)
    lines += worker.communicate()[0].splitlines(keepends=True)
    told = max(int(line) for line in lines if line.endswith(b"\n"))
    async with open_sqlite(path) as (broker, state):
        (delivery,) = await taken(broker, 1)
        at = int(delivery.task.current_node)
        assert told <= at <= told + 1
        leases = await state.lease("e", [(f"s{i}", ()) for i in range(1, at + 1)], 1, 0.0)
        assert [lease.record for lease in leases] == [b"%d" % i for i in range(1, at + 1)]
