"""What State promises of timers, on every backend."""

from __future__ import annotations

import asyncio

from rune.core.operations import (
    Arm,
    Commit,
    Expire,
    Timer,
)
from rune.core.ports import State
from tests.backends.asking import ROOT, E, arm, ask, opening
from tests.backends.conftest import Clock


async def test_due_timers_are_claimed_in_order(state: State, clock: Clock) -> None:
    await arm(state, "b", clock.now + 2, b"B")
    await arm(state, "a", clock.now + 1, b"A", "exec_2")
    await arm(state, "c", clock.now + 3)
    await arm(state, "never", None)
    assert await state.next_due() == clock.now + 1
    assert await state.claim(clock.now, 10, clock.now + 30) == []
    clock.advance(2)
    until = clock.now + 30
    claimed = await state.claim(clock.now, 10, until)
    assert claimed == [
        Timer("a", until, b"A", True, "exec_2", was_due=clock.now - 1),
        Timer("b", until, b"B", True, E, was_due=clock.now),
    ]
    assert await state.next_due() == clock.now + 1


async def test_no_more_are_claimed_than_asked_for(state: State, clock: Clock) -> None:
    for i in range(5):
        await arm(state, f"t{i}", clock.now)
    sizes = [len(await state.claim(clock.now, 2, clock.now + 30)) for _ in range(4)]
    assert sizes == [2, 2, 1, 0]


async def test_a_claim_that_comes_to_nothing_is_found_again(state: State, clock: Clock) -> None:
    await arm(state, "t", clock.now)
    await state.claim(clock.now, 10, clock.now + 30)
    clock.advance(30)
    claimed = await state.claim(clock.now, 10, clock.now + 30)
    assert [(timer.id, timer.was_due) for timer in claimed] == [("t", clock.now - 30)]


async def test_a_discharged_timer_is_gone(state: State, clock: Clock) -> None:
    await arm(state, "t", clock.now)
    claimed = await state.claim(clock.now, 10, clock.now + 30)
    for _ in range(2):
        await state.discharge(claimed)
    assert await state.next_due() is None


async def test_a_late_discharge_leaves_a_newer_claim_alone(state: State, clock: Clock) -> None:
    await arm(state, "t", clock.now)
    late = await state.claim(clock.now, 10, clock.now + 30)
    clock.advance(31)
    await state.claim(clock.now, 10, clock.now + 30)
    await state.discharge(late)
    assert await state.next_due() == clock.now + 30


async def test_a_timer_armed_anew_survives_the_discharge_of_the_old(state: State, clock: Clock) -> None:
    timer = Timer("t", clock.now, b"task", sleeping=False)
    await ask(state, "split", opening(2, timer=timer))
    claimed = await state.claim(clock.now, 10, clock.now + 30)
    clock.advance(1)
    answer = await ask(state, "t", Expire("b", Timer("t", None, b"task", sleeping=False), 60.0, clock.now))
    assert answer.rearmed
    await state.discharge(claimed)
    assert await state.next_due() == clock.now + 60


async def test_the_first_timer_of_its_name_stands(state: State, clock: Clock) -> None:
    await arm(state, "t", clock.now + 5)
    await arm(state, "t", clock.now + 1)
    assert await state.next_due() == clock.now + 5


async def test_a_timer_can_be_looked_at_out_of_its_turn(state: State, clock: Clock) -> None:
    await arm(state, "t", None, b"wake")
    timer = await state.timer(E, "t")
    assert timer is not None
    assert timer.task == b"wake"
    assert await state.timer(E, "other") is None


async def test_timers_that_are_never_due_are_found_and_can_be_discharged(state: State, clock: Clock) -> None:
    await arm(state, "due", clock.now + 1)
    await arm(state, "other", None, execution="exec_2")
    names = {f"t{i:04}" for i in range(1200)}
    await state.apply(
        E, [Commit("s", ROOT, [Arm(Timer(name, None, b"x", name > "t0600"))]) for name in names]
    )

    async def undue() -> dict[str, Timer]:
        found: dict[str, Timer] = {}
        cursor = ""
        while True:
            some, cursor = await state.undue(E, cursor)
            found |= {timer.id: timer for timer in some}
            if not cursor:
                return found

    found = await undue()
    assert found.keys() == names
    assert found["t0601"] == Timer("t0601", None, b"x", True, E)
    assert found["t0600"] == Timer("t0600", None, b"x", False, E)
    one = await state.timer(E, "t0600")
    assert one is not None
    await state.wake(E, "t0601", b"y", clock.now)
    for _ in range(2):
        await state.discharge([one, found["t0602"], found["t0601"]])
    assert (await undue()).keys() == names - {"t0600", "t0601", "t0602"}
    assert await state.timer(E, "t0601") is not None, "what was woken meanwhile is due, and stays"
    assert await state.undue("unknown", "") in (([], ""), ([], "timers:0"))


async def test_a_timer_armed_just_before_the_sleep_ends_it(state: State, clock: Clock) -> None:
    assert await state.next_due() is None
    await arm(state, "t", clock.now)
    await asyncio.wait_for(state.armed(60), 5)


async def test_an_earlier_timer_wakes_the_sleeper(state: State, clock: Clock) -> None:
    await arm(state, "late", clock.now + 100)
    assert await state.next_due() == clock.now + 100
    sleeper = asyncio.create_task(state.armed(60))
    await asyncio.sleep(0)
    await arm(state, "later", clock.now + 200)
    await asyncio.sleep(0.01)
    assert not sleeper.done()
    await arm(state, "early", clock.now + 50)
    await asyncio.wait_for(sleeper, 5)


async def test_the_first_timer_of_all_wakes_the_sleeper(state: State, clock: Clock) -> None:
    assert await state.next_due() is None
    sleeper = asyncio.create_task(state.armed(None))
    await asyncio.sleep(0)
    await arm(state, "t", clock.now + 50)
    await asyncio.wait_for(sleeper, 5)


async def test_sleep_ends_by_itself(state: State) -> None:
    assert await state.next_due() is None
    await asyncio.wait_for(state.armed(0.01), 5)
