"""What a fan-out's barrier does; that doing it again changes nothing, and gives the same answer."""

from __future__ import annotations

import pytest

from rune.core.operations import (
    Answer,
    Lease,
    Open,
    Progress,
    Record,
    Settle,
)
from rune.core.outcome import Policy
from tests.core.bookkeeping import (
    ALARM,
    RELEASE,
    Bench,
    E,
    arrive,
    item,
    opened,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_item_has_its_slot_and_the_last_closes_the_barrier(bench: Bench) -> None:
    opened(bench)
    assert arrive(bench, 2).progress == Progress(1, 3, 0, 0)
    assert arrive(bench, 0).release is None
    assert arrive(bench, 1).release == RELEASE
    assert bench.slots() == {0: 0, 1: 1, 2: 2}
    assert bench.do("late", Settle(1), place=item(1)) == Answer(gone=True)


def test_an_item_that_leaves_nothing_is_skipped_and_one_that_fails_leaves_its_error(bench: Bench) -> None:
    opened(bench)
    bench.twice("ghost", Settle(-1), place=item(0))
    bench.twice("bad", Settle(-1, error=b'"no"'), place=item(1))
    assert arrive(bench, 2).progress == Progress(3, 3, 1, 1)
    assert bench.slots() == {0: None, 1: {"error": "no"}, 2: 2}
    row = bench.rows.barrier(E, "b")
    assert row is not None
    assert (row.succeeded, row.failed, row.skipped, row.failure, row.first_error) == (1, 1, 1, "", b'"no"')


def test_an_empty_fan_out_closes_at_once(bench: Bench) -> None:
    assert bench.twice("s", Open("b", 0, 1, RELEASE, timer=ALARM)).release == RELEASE
    assert bench.timers == {}


def test_a_barriers_timer_goes_when_it_closes(bench: Bench) -> None:
    opened(bench, 1, timer=ALARM)
    assert bench.timers == {"alarm": ALARM}
    arrive(bench, 0)
    assert bench.timers == {}


def test_an_item_with_parallel_branches_is_one_item(bench: Bench) -> None:
    opened(bench, 1, width=2)
    assert bench.twice("x", Settle(-1, b"1", ".0", "x"), place=item(0)).progress is None
    bench.twice("y", Settle(1), place=item(0))
    bench.twice("z", Settle(-1, b"2", ".1", "z"), place=item(0))
    assert bench.twice("w", Settle(-1, b"3", ".0", "z"), place=item(0)).release == RELEASE
    assert bench.slots() == {0: {"x": 1, "z": [3, 2]}}


def test_the_first_error_of_an_item_counts_and_its_other_branches_are_dropped(bench: Bench) -> None:
    opened(bench, 1, width=3)
    bench.twice("x", Settle(-1, error=b'"first"'), place=item(0))
    assert bench.lease("y", place=item(0)) == Lease(dropped=True)
    answer = bench.do("y", Settle(1), place=item(0))
    assert (answer.dropped, answer.release) == (True, None)
    assert bench.twice("z", Record(b"1"), Settle(-1, b"2"), place=item(0)).release == RELEASE
    assert bench.slots() == {0: {"error": "first"}}


@pytest.mark.parametrize(
    ("policy", "failures", "failed"),
    [
        (Policy(), [0, 1, 2], ""),
        (Policy(tolerated=0), [1], "items"),
        (Policy(tolerated=1), [0, 2], "items"),
        (Policy(need_success=True), [0, 1, 2], "items"),
        (Policy(need_success=True), [0, 1], ""),
    ],
)
def test_a_policy_decides_when_items_fail_the_whole(
    bench: Bench, policy: Policy, failures: list[int], failed: str
) -> None:
    opened(bench, policy=policy)
    releases = []
    for i in sorted(range(3), key=lambda i: i not in failures):
        operation = Settle(-1, error=b'"no"') if i in failures else Settle(-1, b"1")
        releases.append(bench.twice(f"item{i}", operation, place=item(i)).release)
    assert releases.count(RELEASE) == 1
    row = bench.rows.barrier(E, "b")
    assert row is not None
    assert (row.failure, row.closed) == (failed, True)


def test_numbers_are_folded_once_for_each_item(bench: Bench) -> None:
    opened(bench, keep_results=False)
    for i in range(3):
        arrive(bench, i, folds=(i, 0.5))
    row = bench.rows.barrier(E, "b")
    assert row is not None
    assert [fold.result() for fold in row.folds] == [(3, 3, 0, 2), (1.5, 3, 0.5, 0.5)]
    assert bench.slots() == dict.fromkeys(range(3))


def test_a_window_is_refilled_by_whoever_made_room(bench: Bench) -> None:
    opened(bench, 6, window=2, published=2, refill=b"refill")
    answers = [arrive(bench, i) for i in range(6)]
    assert [answer.refill for answer in answers] == [(2, 3), (3, 4), (4, 5), (5, 6), None, None]
    assert {answer.refill_task for answer in answers[:4]} == {b"refill"}


def test_a_large_window_is_refilled_a_quarter_at_a_time(bench: Bench) -> None:
    opened(bench, 100, window=8, published=8, refill=b"refill")
    assert [arrive(bench, i).refill for i in range(4)] == [None, (8, 10), None, (10, 12)]


def test_inner_barriers_belong_to_their_item(bench: Bench) -> None:
    opened(bench, 2)
    for i in range(2):
        bench.twice(f"s{i}", Open(f"inner{i}", 1, 1, b"inner release", published=1), place=item(i))
        inside = (*item(i), (f"inner{i}", 0))
        assert bench.twice(f"x{i}", Settle(-1, b"7"), place=inside).release == b"inner release"
        bench.twice(f"item{i}", Settle(-1, b"8"), place=item(i))
        assert bench.rows.barrier(E, f"inner{i}") is None
        assert bench.do(f"x{i}", Settle(-1, b"7"), place=inside).gone
    assert bench.slots() == {0: 8, 1: 8}


def test_what_a_failed_fan_out_left_behind_goes_with_the_scope_around_it(bench: Bench) -> None:
    opened(bench, 1)
    bench.do("s1", Open("inner", 2, 2, b"", policy=Policy(tolerated=0)), place=item(0))
    bench.do("x", Settle(-1, b"1"), place=(*item(0), ("inner", 0)))
    for step in ("y", "z"):
        bench.do(step, Settle(-1, error=b'"no"'), place=(*item(0), ("inner", 1)))
    arrive(bench, 0)
    assert set(bench.rows.at(E).barriers) == {"b"}
    assert [key for key in bench.rows.at(E).scopes if key.startswith("inner")] == []


def test_steps_of_a_barrier_nobody_opened_are_gone(bench: Bench) -> None:
    assert bench.twice("x", Settle(-1, b"1"), place=item(0, "nowhere")) == Answer(gone=True)
