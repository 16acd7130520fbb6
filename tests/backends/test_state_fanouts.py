"""What State promises of fan-outs, on every backend."""

from __future__ import annotations

from fractions import Fraction

from rune.core.operations import (
    Answer,
    Commit,
    Lease,
    Open,
    Place,
    Progress,
    Record,
    Settle,
)
from rune.core.outcome import Policy
from rune.core.ports import State
from tests.backends.asking import E, ask, lease, leave, opening
from tests.backends.conftest import Clock


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
