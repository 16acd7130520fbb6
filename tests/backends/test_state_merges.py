"""What State promises of merges, and of joins whose time is up, on every backend."""

from __future__ import annotations

import pytest

from rune.core.operations import (
    Answer,
    Arm,
    Expire,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
)
from rune.core.ports import State
from tests.backends.asking import ALL, E, arrive, ask, lease, leave, opening
from tests.backends.conftest import Clock

# --- merges ------------------------------------------------------------------------------------------------


async def test_a_merge_opens_when_all_have_arrived(state: State) -> None:
    await ask(state, "fork", Settle(+1))
    assert await ask(state, "x", arrive(order=1, payload=b"1")) == Answer(arrived=(1, 2))
    assert await state.merge(E, "m") is None
    assert await ask(state, "y", arrive(order=0, payload=b"2")) == Answer(opened=["m"], arrived=(2, 2))
    view = await state.merge(E, "m")
    assert view is not None
    assert sorted((a.order, a.step, a.payload) for a in view.arrivals) == [(0, "y", b"2"), (1, "x", b"1")]
    assert (view.failed, view.expected, view.winner) == ("", 2, "")


async def test_arriving_twice_counts_once_and_the_opener_hears_so_again(state: State) -> None:
    await ask(state, "fork", Settle(+1))
    for _ in range(2):
        assert await ask(state, "x", arrive()) == Answer(arrived=(1, 2))
    for _ in range(2):
        assert await ask(state, "y", arrive()) == Answer(opened=["m"], arrived=(2, 2))
    assert (await ask(state, "after", Settle(-1))).ending is not None


async def test_a_skip_can_open_a_merge(state: State) -> None:
    await ask(state, "fork", Settle(+1))
    await ask(state, "x", arrive())
    for _ in range(2):
        assert (await ask(state, "y", Skip(ALL, "y.e", 1))).opened == ["m"]


async def test_a_merge_that_nobody_reaches_is_dead(state: State) -> None:
    await ask(state, "x", Skip(ALL, "x.e", 1))
    for _ in range(2):
        assert (await ask(state, "y", Skip(ALL, "y.e", 1))).dead == ["m"]
    assert await state.merge(E, "m") is None


async def test_the_first_of_any_wins_and_the_late_end(state: State) -> None:
    rule = Rule("m", "n", 3, need=1)
    await ask(state, "fork", Settle(+2))
    assert (await ask(state, "x", arrive(rule))).opened == ["m"]
    for _ in range(2):
        assert (await ask(state, "y", arrive(rule))).opened == []
    view = await state.merge(E, "m")
    assert view is not None
    assert view.winner == "x"
    assert (await ask(state, "z", arrive(rule))).ending is None
    assert (await ask(state, "after", Settle(-1))).ending is not None


async def test_too_few_can_come(state: State) -> None:
    rule = Rule("m", "n", 3, need=2)
    await ask(state, "fork", Settle(+1))
    await ask(state, "x", arrive(rule))
    assert (await ask(state, "y", Skip(rule, "y.e", 2))).opened == ["m"]
    view = await state.merge(E, "m")
    assert view is not None
    assert view.failed == "impossible"


async def test_the_first_live_arrival_arms_the_timer_and_opening_disarms_it(
    state: State, clock: Clock
) -> None:
    rule = Rule("m", "n", 3, timer=Timer("t", clock.now + 5, b"task", sleeping=False))
    await ask(state, "fork", Settle(+1))
    await ask(state, "s", Skip(rule, "s.e", 1))
    assert await state.next_due() is None
    await ask(state, "x", arrive(rule))
    assert await state.next_due() == clock.now + 5
    await ask(state, "y", arrive(rule))
    assert await state.next_due() is None


# --- time-outs ---------------------------------------------------------------------------------------------


async def test_an_expired_barrier_fails_once(state: State, clock: Clock) -> None:
    timer = Timer("t", clock.now + 5, b"task", sleeping=False)
    await ask(state, "split", opening(2, timer=timer))
    for _ in range(2):
        assert (await ask(state, "t", Expire("b", timer))).release == b"release"
    view = await state.barrier(E, "b")
    assert view is not None
    assert view.failure == "timeout"
    assert await leave(state, "s0", 0) == Answer(gone=True)


async def test_a_closed_barrier_does_not_expire(state: State, clock: Clock) -> None:
    timer = Timer("t", clock.now + 5, b"task", sleeping=False)
    await ask(state, "split", opening(1, timer=timer))
    await leave(state, "s0", 0)
    assert await state.next_due() is None
    assert (await ask(state, "t", Expire("b", timer))).release is None


async def test_an_expired_merge_goes_on_as_a_branch(state: State, clock: Clock) -> None:
    timer = Timer("t", clock.now + 5, b"task", sleeping=False)
    await ask(state, "fork", Settle(+1))
    await ask(state, "x", arrive(Rule("m", "n", 2, timer=timer)))
    for _ in range(2):
        assert (await ask(state, "t", Expire("m", timer))).opened == ["m"]
    view = await state.merge(E, "m")
    assert view is not None
    assert view.failed == "timeout"
    await ask(state, "y", arrive(Rule("m", "n", 2)))
    assert (await ask(state, "after", Settle(-1))).ending is not None


@pytest.mark.parametrize("rest", ["progress", "lease"])
async def test_idle_time_does_not_count_while_something_happens(
    state: State, clock: Clock, rest: str
) -> None:
    timer = Timer("t", None, b"task", sleeping=False)
    await ask(state, "split", opening(3))
    clock.advance(100)
    if rest == "progress":
        await leave(state, "s0", 0)
    else:
        await lease(state, "s1", clock.now + 1000, place=(("b", 1),))
    clock.advance(40)
    answer = await ask(state, "t", Expire("b", timer, idle=50.0))
    assert answer.rearmed
    assert answer.release is None
    assert await state.next_due() == clock.now + (10 if rest == "progress" else 50)


async def expired(state: State, clock: Clock) -> list[str]:
    """The timers that are due, gone as if their Tasks had been published."""
    claimed = await state.claim(clock.now, 10, clock.now + 30)
    await state.discharge(claimed)
    return [timer.id for timer in claimed]


async def test_a_default_time_out_sleeps_as_long_as_the_last_branch_does(state: State, clock: Clock) -> None:
    """A wait of a month is one look at its time-out, not one every five minutes."""
    month = 30 * 24 * 3600.0
    start = clock.now
    timer = Timer("t", None, b"task", sleeping=False)
    await ask(state, "split", opening(3, timer=Timer("t", start + 300, b"task", sleeping=False)))
    for i, wait in enumerate((3600.0, month, 60.0)):
        await ask(state, f"w{i}", Arm(Timer(f"w{i}", start + wait, b"task")), place=(("b", i),))
    clock.advance(300)
    assert set(await expired(state, clock)) == {"w2", "t"}
    assert (await ask(state, "t", Expire("b", timer, idle=300.0))).rearmed
    clock.advance(month - 300)
    assert set(await expired(state, clock)) == {"w0", "w1"}
    assert await state.next_due() == clock.now + 300, "one look, when the last one has been awake for long"
    clock.advance(300)
    assert await expired(state, clock) == ["t"]
    assert (await ask(state, "t", Expire("b", timer, idle=300.0))).release == b"release"


async def test_a_sleep_without_an_end_is_looked_at_ever_more_rarely(state: State, clock: Clock) -> None:
    timer = Timer("t", None, b"task", sleeping=False)
    await ask(state, "split", opening(1))
    await ask(state, "w", Arm(Timer("w", None, b"task")), place=(("b", 0),))
    looks = 0
    clock.advance(300)
    start = clock.now
    while clock.now < start + 30 * 24 * 3600:
        assert (await ask(state, "t", Expire("b", timer, idle=300.0))).rearmed
        due = await state.next_due()
        assert due is not None
        clock.advance(due - clock.now)
        looks += 1
    assert looks < 20


@pytest.mark.parametrize("rest", ["nothing", "record", "timer without a sleeper"])
async def test_idle_time_counts_while_nothing_happens(state: State, clock: Clock, rest: str) -> None:
    timer = Timer("t", None, b"task", sleeping=False)
    await ask(state, "split", opening(3))
    if rest == "record":
        await lease(state, "s1", clock.now + 1000, place=(("b", 1),))
        await ask(state, "s1", Record(b"1", fence=1), place=(("b", 1),))
    elif rest == "timer without a sleeper":
        await ask(state, "s1", Arm(Timer("u", clock.now + 1000, b"task", sleeping=False)))
    clock.advance(50)
    answer = await ask(state, "t", Expire("b", timer, idle=50.0))
    assert answer.release == b"release"
    assert not answer.rearmed
