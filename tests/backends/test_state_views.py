"""What can be seen from outside of executions that have not ended: on every backend."""

from __future__ import annotations

import asyncio

from rune.core.operations import (
    Arm,
    ArriveAt,
    Commit,
    Open,
    Operation,
    Place,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
)
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"
ROOT: Place = ()


async def ask(state: State, step: str, *operations: Operation, place: Place = ROOT) -> None:
    await state.apply(E, [Commit(step, place, operations)])


async def test_state_knows_who_is_alive_and_who_has_ended(state: State, clock: Clock) -> None:
    await ask(state, "fork", Settle(+1))
    await state.put("exec_2", {"hash": b"1"})
    await state.put("exec_3", {"hash": b"1"})
    await state.bury("exec_3", [], clock.now + 100)
    assert await state.standings([E, "exec_2", "exec_3", "exec_4"]) == {
        E: "alive",
        "exec_2": "alive",
        "exec_3": "ended",
    }
    assert await state.standings([]) == {}


async def test_nothing_holds_what_is_unknown_or_buried(state: State, clock: Clock) -> None:
    assert await state.holding(E, 10) is None
    await ask(state, "fork", Settle(+1))
    await state.bury(E, [], clock.now + 100)
    assert await state.holding(E, 10) is None


async def test_leases_hold_an_execution_until_they_end(state: State, clock: Clock) -> None:
    await ask(state, "split", Open("b", 2, 1, b"release", published=2))
    await state.lease(E, [("s", ROOT), ("t", (("b", 1),))], 1, clock.now + 10)
    await ask(state, "s", Record(b"done", 1))
    seen = await state.holding(E, 10)
    assert seen is not None
    assert [(lease.step, lease.scope, lease.until) for lease in seen.leases] == [("t", "b.1", clock.now + 10)]
    assert seen.counts["leases"] == 1
    clock.advance(11)
    seen = await state.holding(E, 10)
    assert seen is not None
    assert seen.leases == ()


async def test_timers_hold_it_those_due_first_first(state: State, clock: Clock) -> None:
    due = {"late": clock.now + 9, "never": None, "soon": clock.now + 1}
    for id, at in due.items():
        await ask(state, id, Arm(Timer(id, at, b"task " + id.encode(), sleeping=id != "late")))
    seen = await state.holding(E, 10)
    assert seen is not None
    assert [(t.id, t.due, t.task, t.sleeping, t.execution) for t in seen.timers] == [
        ("soon", clock.now + 1, b"task soon", True, E),
        ("late", clock.now + 9, b"task late", False, E),
        ("never", None, b"task never", True, E),
    ]
    assert seen.counts["timers"] == 3
    assert [(t.id, t.execution) for t in await state.timers(10)] == [("soon", E), ("late", E)]
    assert [t.id for t in await state.timers(1)] == ["soon"]


async def test_a_fan_out_holds_it_with_the_items_it_misses(state: State) -> None:
    await ask(state, "split", Open("b", 100, 1, b"release", window=20, published=20, refill=b"more"))
    for item in (0, 1, 4):
        await ask(state, f"s{item}", Settle(-1, b"1"), place=(("b", item),))
    await ask(state, "s2", Settle(-1, error=b"{}"), place=(("b", 2),))
    await ask(state, "inner", Open("c", 1, 1, b"deep", published=1), place=(("b", 3),))
    seen = await state.holding(E, 10)
    assert seen is not None
    outer, inner = sorted(seen.barriers, key=lambda barrier: barrier.barrier)
    assert (outer.barrier, outer.scope, outer.total, outer.done, outer.failed) == ("b", "", 100, 4, 1)
    assert (outer.published, outer.missing, outer.release) == (20, (3, 5, 6, 7, 8), b"release")
    assert (inner.barrier, inner.scope, inner.missing) == ("c", "b.3", (0,))


async def test_a_merge_holds_it_with_what_has_arrived(state: State) -> None:
    await ask(state, "fork", Settle(+2))
    await ask(state, "x", ArriveAt(Rule("m", "n", 4, 3), 0, b"{}"))
    await ask(state, "y", Skip(Rule("m", "n", 4, 3), "y!e", 1))
    seen = await state.holding(E, 10)
    assert seen is not None
    (merge,) = seen.merges
    assert (merge.merge, merge.scope, merge.expected, merge.accounted, merge.live, merge.need) == (
        "m",
        "",
        4,
        2,
        1,
        3,
    )
    assert sorted(merge.arrivals) == ["x", "y!e"]
    # Of the three branches one has ended at the merge.
    assert seen.live == 2


async def test_a_pause_holds_it_with_what_is_parked(state: State) -> None:
    await ask(state, "fork", Settle(+1))
    await state.pause(E)
    await state.park(E, "s", b"task")
    seen = await state.holding(E, 10)
    assert seen is not None
    assert (seen.paused, seen.parked, seen.ended, seen.live) == (True, 1, False, 2)


async def test_no_more_is_shown_than_was_asked_for(state: State, clock: Clock) -> None:
    for i in range(20):
        await ask(state, f"s{i}", Arm(Timer(f"t{i}", clock.now + i, b"task")), Open(f"b{i}", 2, 1, b"r"))
    seen = await state.holding(E, 5)
    assert seen is not None
    assert (len(seen.timers), len(seen.barriers), seen.counts["timers"]) == (5, 5, 20)


# --- waking ------------------------------------------------------------------------------------------------


async def test_what_is_never_due_can_be_woken_with_another_task(state: State, clock: Clock) -> None:
    await ask(state, "s", Arm(Timer("s", None, b"task")))
    assert await state.wake(E, "s", b"payload", clock.now)
    (timer,) = await state.claim(clock.now, 10, clock.now + 30)
    assert (timer.id, timer.task, timer.execution) == ("s", b"payload", E)
    await state.discharge([timer])
    assert not await state.wake(E, "s", b"payload", clock.now)


async def test_of_many_who_wake_it_one_does(state: State, clock: Clock) -> None:
    await ask(state, "s", Arm(Timer("s", None, b"task")))
    woken = await asyncio.gather(*(state.wake(E, "s", b"by %d" % i, clock.now) for i in range(10)))
    assert woken.count(True) == 1
    (timer,) = await state.claim(clock.now, 10, clock.now + 30)
    assert timer.task == b"by %d" % woken.index(True)
    # Whoever asks again, because the answer was lost, hears the same.
    assert await state.wake(E, "s", timer.task, clock.now)


async def test_what_has_a_time_or_is_not_there_cannot_be_woken(state: State, clock: Clock) -> None:
    await ask(state, "s", Arm(Timer("s", clock.now + 10, b"task")))
    assert not await state.wake(E, "s", b"payload", clock.now)
    assert not await state.wake(E, "other", b"payload", clock.now)
    assert not await state.wake("exec_2", "s", b"payload", clock.now)
    assert await state.next_due() == clock.now + 10


async def test_waking_wakes_the_scheduler(state: State, clock: Clock) -> None:
    await ask(state, "s", Arm(Timer("s", None, b"task")))
    assert await state.next_due() is None
    sleeper = asyncio.create_task(state.armed(60))
    await asyncio.sleep(0)
    await state.wake(E, "s", b"payload", clock.now)
    await asyncio.wait_for(sleeper, 5)
    assert await state.next_due() == clock.now
