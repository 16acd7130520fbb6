"""What State promises, on every backend: each operation, and that repeating it changes nothing."""

from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest

from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    End,
    Expire,
    Lease,
    Open,
    Operation,
    Place,
    Progress,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
    TryAgain,
)
from rune.core.outcome import Policy
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"
ROOT: Place = ()


async def ask(state: State, step: str, *operations: Operation, place: Place = ROOT) -> Answer:
    """One step's commit."""
    (answer,) = await state.apply(E, [Commit(step, place, operations)])
    return answer


async def leave(state: State, step: str, item: int, end: bytes | None = b"1", barrier: str = "b") -> Answer:
    """The only branch of an item ends."""
    return await ask(state, step, Settle(-1, end), place=((barrier, item),))


async def lease(state: State, step: str, until: float, *, attempt: int = 1, place: Place = ROOT) -> Lease:
    (answer,) = await state.lease(E, [(step, place)], attempt, until)
    return answer


def opening(total: int, **rest: object) -> Open:
    return Open("b", total, rest.pop("width", 1), b"release", **rest)  # type: ignore[arg-type]


# --- the execution's own scope -----------------------------------------------------------------------------


async def test_one_branch_that_ends_ends_the_execution(state: State, clock: Clock) -> None:
    answer = await ask(state, "s", Settle(-1, b"{}"))
    assert answer.ending is not None
    assert (answer.ending.status, answer.ending.at, list(answer.ending.contexts)) == (
        "completed",
        clock.now,
        [b"{}"],
    )


async def test_whoever_ended_it_hears_so_again_and_others_that_it_is_gone(state: State) -> None:
    first = await ask(state, "s", Settle(-1, b"{}"))
    again = await ask(state, "s", Settle(-1, b"{}"))
    assert again.gone
    assert again.ending == first.ending
    assert await ask(state, "other", Settle(-1)) == Answer(gone=True)


async def test_several_branches_give_one_ending_in_path_order(state: State) -> None:
    await ask(state, "fork", Settle(+2))
    assert (await ask(state, "c", Settle(-1, b"3", ".10"))).ending is None
    assert (await ask(state, "b", Settle(-1, b"2", ".2"))).ending is None
    ending = (await ask(state, "a", Settle(-1, b"1", ".0"))).ending
    assert ending is not None
    assert list(ending.contexts) == [b"1", b"2", b"3"]


async def test_settling_twice_counts_once(state: State) -> None:
    for _ in range(3):
        await ask(state, "fork", Settle(+1))
    for _ in range(3):
        assert (await ask(state, "a", Settle(-1, b"1", ".0"))).ending is None
    ending = (await ask(state, "b", Settle(-1, b"2", ".1"))).ending
    assert ending is not None
    assert list(ending.contexts) == [b"1", b"2"]


async def test_an_execution_can_be_ended_outright(state: State) -> None:
    answer = await ask(state, "s", End("halted", b'{"message":"no"}', "stopped", b"{}"))
    assert answer.ending is not None
    assert (answer.ending.status, answer.ending.error, answer.ending.reason) == (
        "halted",
        b'{"message":"no"}',
        "stopped",
    )
    assert (await ask(state, "s", End("failed"))).ending == answer.ending
    assert await ask(state, "t", Record(b"1")) == Answer(gone=True)


async def test_executions_do_not_see_each_other(state: State) -> None:
    await state.apply("exec_2", [Commit("s", ROOT, [Record(b"theirs")])])
    assert (await ask(state, "s", Record(b"ours"))).record is None


async def test_several_commits_are_carried_out_in_order(state: State) -> None:
    answers = await state.apply(
        E, [Commit("fork", ROOT, [Settle(+1)]), *(Commit(s, ROOT, [Settle(-1)]) for s in "ab")]
    )
    assert [answer.ending is not None for answer in answers] == [False, False, True]


async def test_calls_made_at_once_are_carried_out_one_after_the_other(state: State) -> None:
    await ask(state, "split", opening(50))
    answers = await asyncio.gather(*(leave(state, f"s{i}", i) for i in range(50)))
    assert sorted(a.progress.processed for a in answers if a.progress) == list(range(1, 51))
    assert sum(answer.release is not None for answer in answers) == 1


async def test_the_first_to_end_it_says_when_it_started(state: State) -> None:
    """A message that starts an execution may come twice, and nobody can tell which of them was first."""
    endings = []
    for started_at in (17.25, 18.5):
        (answer,) = await state.apply(E, [Commit("s", ROOT, [Settle(-1, b"{}")], started_at)])
        endings.append(answer.ending)
    assert endings[0] is not None
    assert endings[0].started_at == 17.25
    assert endings[1] == endings[0]


# --- records and leases ------------------------------------------------------------------------------------


async def test_the_first_record_stands(state: State) -> None:
    assert await ask(state, "s", Record(b"1")) == Answer()
    assert await ask(state, "s", Record(b"1")) == Answer()
    assert await ask(state, "s", Record(b"2"), Settle(-1)) == Answer(record=b"1")
    assert (await ask(state, "s", Record(b"1"), Settle(-1))).ending is not None


async def test_a_lease_keeps_others_out_until_it_ends(state: State, clock: Clock) -> None:
    assert await lease(state, "s", clock.now + 10) == Lease(fence=1)
    assert await lease(state, "s", clock.now + 20) == Lease(busy_until=clock.now + 10)
    clock.advance(10)
    assert await lease(state, "s", clock.now + 10) == Lease(fence=2)


async def test_a_renewed_lease_lasts_longer(state: State, clock: Clock) -> None:
    await lease(state, "s", clock.now + 10)
    assert await state.renew(E, "s", 1, clock.now + 30)
    clock.advance(20)
    assert await lease(state, "s", clock.now + 10) == Lease(busy_until=clock.now + 10)


async def test_a_lost_lease_cannot_be_renewed_and_its_record_does_not_count(
    state: State, clock: Clock
) -> None:
    await lease(state, "s", clock.now + 10)
    clock.advance(11)
    await lease(state, "s", clock.now + 10)
    assert not await state.renew(E, "s", 1, clock.now + 10)
    assert await ask(state, "s", Record(b"late", fence=1), Settle(-1)) == Answer(gone=True)
    assert (await ask(state, "s", Record(b"good", fence=2))).record is None
    assert await lease(state, "s", clock.now + 10) == Lease(record=b"good")


async def test_nothing_to_renew(state: State, clock: Clock) -> None:
    assert not await state.renew(E, "never", 1, clock.now + 10)
    await lease(state, "s", clock.now + 10)
    await ask(state, "s", Record(b"1", fence=1))
    assert not await state.renew(E, "s", 1, clock.now + 10)


async def test_a_lease_given_back_does_not_count_as_a_start(state: State, clock: Clock) -> None:
    await lease(state, "s", clock.now + 10)
    await state.give_back(E, [("s", 1), ("unknown", 1)])
    await state.give_back(E, [("s", 1)])
    assert await lease(state, "s", clock.now + 10) == Lease(fence=1)


async def test_a_spent_attempt_is_gone_and_the_next_starts_afresh(state: State, clock: Clock) -> None:
    await lease(state, "s", clock.now + 10)
    again = Timer("again", clock.now + 1, b"task")
    for _ in range(2):
        assert await ask(state, "s", TryAgain(1, again)) == Answer()
    assert await lease(state, "s", clock.now + 10) == Lease(gone=True)
    assert await lease(state, "s", clock.now + 10, attempt=2) == Lease(fence=1)
    clock.advance(1)
    assert [timer.id for timer in await state.claim(clock.now, 10, clock.now + 30)] == ["again"]


async def test_no_lease_in_an_execution_that_has_ended(state: State, clock: Clock) -> None:
    await ask(state, "s", End("failed"))
    assert await lease(state, "t", clock.now + 10) == Lease(gone=True)


async def test_several_leases_at_once(state: State, clock: Clock) -> None:
    await ask(state, "split", opening(2))
    steps: list[tuple[str, Place]] = [("s0", (("b", 0),)), ("s1", (("b", 1),)), ("s2", (("nowhere", 0),))]
    leases = await state.lease(E, steps, 1, clock.now + 10)
    assert leases == [Lease(fence=1), Lease(fence=1), Lease(gone=True)]


# --- fan-outs ----------------------------------------------------------------------------------------------


async def test_whoever_fills_the_last_slot_closes_the_barrier(state: State) -> None:
    assert await ask(state, "split", opening(2)) == Answer()
    assert await leave(state, "s0", 0) == Answer(progress=Progress(1, 2, 0, 0))
    assert await state.barrier(E, "b") is None
    assert await leave(state, "s1", 1) == Answer(release=b"release", progress=Progress(2, 2, 0, 0))
    view = await state.barrier(E, "b")
    assert view is not None
    assert (view.total, view.succeeded, view.failed, view.skipped, view.failure) == (2, 2, 0, 0, "")


async def test_an_item_that_ends_twice_counts_once(state: State) -> None:
    await ask(state, "split", opening(2))
    await leave(state, "s0", 0)
    assert await leave(state, "s0", 0) == Answer(gone=True)
    assert (await leave(state, "s1", 1)).release == b"release"


async def test_whoever_closed_it_gets_the_release_again(state: State) -> None:
    await ask(state, "split", opening(1))
    await leave(state, "s0", 0)
    assert await leave(state, "s0", 0) == Answer(gone=True, release=b"release")
    assert await leave(state, "other", 0) == Answer(gone=True)


async def test_opening_again_changes_nothing(state: State) -> None:
    await ask(state, "split", opening(2))
    await leave(state, "s0", 0)
    assert await ask(state, "split", opening(5)) == Answer()
    assert (await leave(state, "s1", 1)).release == b"release"


async def test_a_fan_out_over_nothing_closes_at_once(state: State) -> None:
    for _ in range(2):
        assert await ask(state, "split", opening(0)) == Answer(release=b"release")
    assert await state.slots(E, "b", 0, 10) == []


async def test_slots_come_in_order_by_page_without_the_skipped(state: State) -> None:
    await ask(state, "split", opening(12))
    for i in (11, 3, 7, 0, 1, 2, 4, 5, 6, 8, 9, 10):
        await leave(state, f"s{i}", i, None if i == 5 else b"%d" % i)
    assert await state.slots(E, "b", 3, 4) == [(3, b"3"), (4, b"4"), (6, b"6")]
    assert await state.slots(E, "b", 10, 100) == [(10, b"10"), (11, b"11")]
    view = await state.barrier(E, "b")
    assert view is not None
    assert view.skipped == 1


async def test_a_batch_of_items_in_one_call(state: State) -> None:
    await ask(state, "split", opening(600))
    for at in range(0, 600, 200):
        commits = [
            Commit(f"s{i}", (("b", i),), [Settle(-1, b"%d" % i, folds=(i,))]) for i in range(at, at + 200)
        ]
        answers = await state.apply(E, commits)
        assert [a.progress.processed for a in answers if a.progress] == list(range(at + 1, at + 201))
    assert answers[-1].release == b"release"
    assert len(await state.slots(E, "b", 0, 1000)) == 600


async def test_a_failed_item_keeps_its_error_and_the_first_is_shown(state: State) -> None:
    await ask(state, "split", opening(2))
    await ask(state, "s0", Settle(-1, error=b'{"message":"a"}'), place=(("b", 0),))
    await ask(state, "s1", Settle(-1, error=b'{"message":"b"}'), place=(("b", 1),))
    view = await state.barrier(E, "b")
    assert view is not None
    assert (view.failed, view.first_error, view.failure) == (2, b'{"message":"a"}', "")
    assert await state.slots(E, "b", 0, 1) == [(0, b'{"error":{"message":"a"}}')]


async def test_more_failures_than_tolerated_close_it_early(state: State) -> None:
    await ask(state, "split", opening(5, policy=Policy(tolerated=1)))
    assert (await ask(state, "s0", Settle(-1, error=b"1"), place=(("b", 0),))).release is None
    assert (await ask(state, "s1", Settle(-1, error=b"1"), place=(("b", 1),))).release == b"release"
    assert await leave(state, "s2", 2) == Answer(gone=True)
    view = await state.barrier(E, "b")
    assert view is not None
    assert (view.failure, view.failed) == ("items", 2)


async def test_nothing_but_failures_where_success_is_needed(state: State) -> None:
    await ask(state, "split", opening(1, policy=Policy(need_success=True)))
    await ask(state, "s0", Settle(-1, error=b"1"), place=(("b", 0),))
    view = await state.barrier(E, "b")
    assert view is not None
    assert view.failure == "items"


async def test_branches_of_one_item_make_one_result(state: State) -> None:
    await ask(state, "split", opening(1, width=3))
    place: Place = (("b", 0),)
    assert (await ask(state, "y", Settle(-1, b"2", ".1", "n"), place=place)).progress is None
    assert (await ask(state, "x", Settle(-1, b"1", ".0", "n"), place=place)).progress is None
    assert (await ask(state, "y", Settle(-1, b"2", ".1", "n"), place=place)).progress is None
    assert (await ask(state, "z", Settle(-1, b"3", ".2", "m"), place=place)).release == b"release"
    assert await state.slots(E, "b", 0, 1) == [(0, b'{"n":[1,2],"m":3}')]


async def test_the_other_branches_of_a_failed_item_are_dropped(state: State, clock: Clock) -> None:
    await ask(state, "split", opening(1, width=2))
    place: Place = (("b", 0),)
    await ask(state, "x", Settle(-1, error=b'"no"'), place=place)
    assert await lease(state, "y", clock.now + 10, place=place) == Lease(dropped=True)
    answer = await ask(state, "y", Record(b"1"), Settle(+5), place=place)
    assert answer.dropped
    assert answer.release == b"release"
    assert await state.slots(E, "b", 0, 1) == [(0, b'{"error":"no"}')]


async def test_folds_are_exact_in_any_order(state: State) -> None:
    await ask(state, "split", opening(4, keep_results=False))
    values = [1e300, 5e-324, -1e300, 2**60]
    for i, value in enumerate(values):
        await ask(state, f"s{i}", Settle(-1, b"1", folds=(value, i)), place=(("b", i),))
    view = await state.barrier(E, "b")
    assert view is not None
    exact = float(sum(map(Fraction, values)))
    assert view.folds == ((exact, 4, -1e300, 1e300), (6, 4, 0, 3))
    assert await state.slots(E, "b", 0, 4) == [(i, b"null") for i in range(4)]


async def test_a_window_is_refilled_and_the_answer_remembered(state: State) -> None:
    await ask(state, "split", opening(10, window=4, published=4, refill=b"more"))
    first = await leave(state, "s0", 0)
    assert (first.refill, first.refill_task) == ((4, 5), b"more")
    assert (await leave(state, "s0", 0)).refill == (4, 5)
    assert (await leave(state, "s1", 1)).refill == (5, 6)
    assert (await leave(state, "s1", 1)).refill == (5, 6)


async def test_inner_barriers_end_with_the_item_around_them(state: State) -> None:
    await ask(state, "split", opening(2))
    outer: Place = (("b", 0),)
    await ask(state, "inner", Open("i", 2, 1, b"inner"), place=outer)
    await ask(state, "i0", Settle(-1, b"1"), place=(*outer, ("i", 0)))
    answer = await ask(state, "i1", Settle(-1, b"2"), place=(*outer, ("i", 1)))
    assert answer.release == b"inner"
    assert await state.slots(E, "i", 0, 2) == [(0, b"1"), (1, b"2")]
    await ask(state, "g", Settle(-1, b"[1,2]"), place=outer)
    assert await state.barrier(E, "i") is None
    assert (await ask(state, "i1", Settle(-1, b"2"), place=(*outer, ("i", 1)))).gone


async def test_items_left_behind_by_an_early_close_end_with_the_item_around_them(state: State) -> None:
    await ask(state, "split", opening(2))
    outer: Place = (("b", 0),)
    left: Place = (*outer, ("i", 1))
    await ask(state, "inner", Open("i", 2, 1, b"inner", Policy(tolerated=0)), place=outer)
    await ask(state, "deeper", Record(b"1"), Open("j", 3, 1, b"deeper"), place=left)
    await ask(state, "i0", Settle(-1, error=b"1"), place=(*outer, ("i", 0)))
    await ask(state, "g", Settle(-1, b"[]"), place=outer)
    assert await ask(state, "deeper", Record(b"2"), place=left) == Answer(gone=True)
    await leave(state, "s1", 1)
    view = await state.barrier(E, "b")
    assert view is not None
    assert view.succeeded == 2


# --- merges ------------------------------------------------------------------------------------------------

ALL = Rule("m", "n", 2)


def arrive(rule: Rule = ALL, order: int = 0, payload: bytes = b"{}") -> ArriveAt:
    return ArriveAt(rule, order, payload)


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


# --- timers ------------------------------------------------------------------------------------------------


async def arm(state: State, id: str, due: float | None, task: bytes = b"task", execution: str = E) -> None:
    await state.apply(execution, [Commit("s", ROOT, [Arm(Timer(id, due, task))])])


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


# --- values, pauses, burials -------------------------------------------------------------------------------


async def test_values_are_found_by_execution_and_hash(state: State) -> None:
    await state.put(E, {"h1": b"1", "h2": b""})
    await state.put(E, {"h1": b"1", "h3": b"3"})
    await state.put("exec_2", {"h4": b"4"})
    assert await state.get(E, ["h1", "h2", "h3", "h4", "h5"]) == {"h1": b"1", "h2": b"", "h3": b"3"}


async def test_of_two_values_under_one_name_the_first_counts(state: State) -> None:
    await state.put(E, {"name": b"first"})
    await state.put(E, {"name": b"second", "other": b"1"})
    assert await state.get(E, ["name", "other"]) == {"name": b"first", "other": b"1"}


async def test_an_execution_lives_from_its_first_value_to_its_burial(state: State, clock: Clock) -> None:
    await state.put(E, {"h": b"1"})
    await state.put("exec_2", {"h": b"1"})
    assert await state.live() == [E, "exec_2"]
    await state.bury(E, [], clock.now + 100)
    assert await state.live() == ["exec_2"]
    assert await state.news() == (frozenset({E}), frozenset())


async def test_burial_leaves_a_tombstone_and_the_values_to_keep(state: State, clock: Clock) -> None:
    await state.put(E, {"kept": b"1", "lost": b"2"})
    await ask(state, "split", Record(b"1"), opening(2, timer=Timer("t", clock.now + 1, b"task")))
    await leave(state, "s0", 0)
    await ask(state, "fork", Settle(+1))
    await ask(state, "x", arrive())
    await state.bury(E, ["kept", "unknown"], clock.now + 100)
    assert await state.get(E, ["kept", "lost"]) == {"kept": b"1"}
    assert await state.barrier(E, "b") is None
    assert await state.merge(E, "m") is None
    assert await state.next_due() is None
    assert await state.timer(E, "t") is None
    assert await ask(state, "split", Record(b"1")) == Answer(gone=True)
    assert await leave(state, "s1", 1) == Answer(gone=True)
    assert await lease(state, "z", clock.now + 1) == Lease(gone=True)
    await state.bury(E, ["kept"], clock.now + 100)
    assert await state.get(E, ["kept"]) == {"kept": b"1"}


async def test_many_values_are_kept(state: State, clock: Clock) -> None:
    values = {f"h{i}": bytes([i % 256]) * 3000 for i in range(1200)}
    await state.put(E, values)
    await state.put(E, {"lost": b"1"})
    await state.bury(E, values, clock.now + 100)
    assert await state.get(E, [*values, "lost"]) == values


async def test_a_paused_execution_parks_its_tasks(state: State) -> None:
    await state.put(E, {"h": b"1"})
    assert not await state.park(E, "s", b"task")
    assert await state.pause(E)
    assert await state.news() == (frozenset(), frozenset({E}))
    assert await state.park(E, "s", b"one")
    assert await state.park(E, "t", b"two")
    assert await state.park(E, "s", b"one")
    for _ in range(2):
        assert sorted(await state.unpause(E)) == [b"one", b"two"]
    assert not await state.park(E, "u", b"three")
    await state.unparked(E)
    assert await state.unpause(E) == []
    assert await state.news() == (frozenset(), frozenset())


async def test_what_is_parked_before_the_last_was_published_stays_parked(state: State) -> None:
    await state.put(E, {"h": b"1"})
    assert await state.pause(E)
    assert await state.park(E, "s", b"one")
    assert await state.unpause(E) == [b"one"]
    assert await state.pause(E)
    assert await state.park(E, "s", b"again")
    await state.unparked(E)
    assert await state.unpause(E) == [b"again"]


async def test_what_has_ended_cannot_be_paused(state: State, clock: Clock) -> None:
    await ask(state, "s", End("failed"))
    assert not await state.pause(E)
    await state.bury(E, [], clock.now + 100)
    assert not await state.pause(E)
    assert await state.news() == (frozenset({E}), frozenset())
