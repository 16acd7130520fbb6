"""What each State operation does; that doing it again changes nothing, and gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    End,
    Expire,
    Extend,
    Lease,
    Open,
    Operation,
    Place,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
    TryAgain,
    scope_key,
)
from rune.core.outcome import Policy
from tests.core.bookkeeping import (
    ALARM,
    RELEASE,
    Bench,
    E,
    arrive,
    forked,
    item,
    live,
    opened,
    rule,
    what_matters,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- the root scope ---


def test_one_branch_all_along_ends_the_execution_with_its_context(bench: Bench) -> None:
    answer = bench.twice("a", Settle(-1, b"{}", "", "a"))
    assert answer.ending is not None
    assert (answer.ending.status, answer.ending.at, list(answer.ending.contexts)) == (
        "completed",
        50.0,
        [b"{}"],
    )


def test_several_leaves_give_one_ending_in_path_order(bench: Bench) -> None:
    bench.twice("fork", Settle(2))
    for step, path in (("c", ".10"), ("a", ".2"), ("b", ".2.0")):
        answer = bench.twice(step, Settle(-1, step.encode(), path, step))
        assert (answer.ending is None) == (step != "b")
    assert answer.ending is not None
    assert list(answer.ending.contexts) == [b"a", b"b", b"c"]


def test_after_the_end_everybody_but_the_closer_is_gone(bench: Bench) -> None:
    bench.do("a", Settle(-1, b"{}"))
    answer = bench.twice("b", Settle(1))
    assert (answer.gone, answer.ending) == (True, None)
    assert bench.lease("b") == Lease(gone=True)


def test_an_execution_may_be_ended_from_outside(bench: Bench) -> None:
    bench.do("fork", Settle(1))
    answer = bench.twice("cancel", End("halted", b'{"message":"x"}', "enough", b"{}"))
    ending = answer.ending
    assert ending is not None
    assert (ending.status, ending.error, ending.reason) == ("halted", b'{"message":"x"}', "enough")
    assert list(ending.contexts) == [b"{}"]
    assert bench.do("other", End("failed")).gone


def test_commits_of_one_call_are_carried_out_in_order(bench: Bench) -> None:
    commits = [Commit("fork", (), [Settle(1)]), Commit("a", (), [Settle(-1)]), Commit("b", (), [Settle(-1)])]
    answers = bench.ledger.apply(E, commits)
    assert [answer.ending is not None for answer in answers] == [False, False, True]


# --- records and leases ---


def test_the_first_record_stands_and_stops_any_other(bench: Bench) -> None:
    bench.twice("a", Record(b"1"), Settle(1))
    answer = bench.do("a", Record(b"2"), Settle(5))
    assert (answer.record, answer.gone) == (b"1", False)
    assert bench.rows.at(E).scopes[""].row.live == 2  # type: ignore[union-attr]
    assert bench.lease("a") == Lease(record=b"1")


def test_a_lease_is_granted_once_at_a_time_with_rising_numbers(bench: Bench) -> None:
    assert bench.lease("a", 60) == Lease(fence=1)
    assert bench.lease("a", 70) == Lease(busy_until=60)
    assert bench.lease("b", 70) == Lease(fence=1)
    bench.now = 61
    assert bench.lease("a", 80) == Lease(fence=2)


def test_who_lost_the_lease_cannot_record(bench: Bench) -> None:
    bench.lease("a", 60)
    bench.now = 61
    bench.lease("a", 80)
    assert bench.do("a", Record(b"1", fence=1), Settle(1)).gone
    assert not bench.do("a", Record(b"2", fence=2), Settle(1)).gone
    assert bench.lease("a") == Lease(record=b"2")


def test_an_attempt_that_is_spent_rests_in_a_timer_and_is_not_started_again(bench: Bench) -> None:
    bench.lease("a", 60)
    bench.twice("a", TryAgain(1, Timer("again", 70, b"task")))
    assert bench.timers["again"].due == 70
    assert bench.lease("a", attempt=1) == Lease(gone=True)
    assert bench.lease("a", attempt=2) == Lease(fence=1)


def test_a_timer_is_armed_once(bench: Bench) -> None:
    bench.twice("a", Arm(Timer("a", 70, b"first")))
    bench.do("a", Arm(Timer("a", 99, b"second")))
    assert bench.timers["a"] == Timer("a", 70, b"first")


# --- time-outs ---


def test_a_barrier_whose_time_is_up_fails(bench: Bench) -> None:
    opened(bench, timer=ALARM)
    arrive(bench, 0)
    assert bench.twice("expire", Expire("b", ALARM)).release == RELEASE
    row = bench.rows.barrier(E, "b")
    assert row is not None
    assert (row.failure, row.closed) == ("timeout", True)
    assert bench.do("item1", Settle(-1, b"1"), place=item(1)) == Answer(gone=True)


def test_a_merge_whose_time_is_up_fails_and_goes_on(bench: Bench) -> None:
    forked(bench, 2)
    bench.do("a", ArriveAt(rule(2), 0, b"A"))
    assert bench.twice("expire", Expire("m", ALARM)).opened == ["m"]
    assert live(bench) == 2
    assert bench.twice("b", ArriveAt(rule(2), 1, b"B")).opened == []
    assert live(bench) == 1


def test_a_join_that_has_opened_does_not_time_out(bench: Bench) -> None:
    opened(bench, 1)
    arrive(bench, 0)
    assert bench.twice("expire", Expire("b", ALARM)) == Answer()
    assert bench.twice("expire2", Expire("nothing", ALARM)) == Answer()


def test_a_default_time_out_counts_only_time_without_progress(bench: Bench) -> None:
    opened(bench)
    bench.now = 90
    arrive(bench, 0)
    bench.now = 100
    answer = bench.twice("expire", Expire("b", ALARM, idle=30))
    assert (answer.rearmed, answer.release) == (True, None)
    assert bench.timers["alarm"].due == 120
    bench.now = 120
    assert bench.twice("expire", Expire("b", ALARM, idle=30)).release == RELEASE


def test_a_default_time_out_counts_from_when_the_worker_was_born(bench: Bench) -> None:
    opened(bench)
    bench.now = 1000
    assert bench.do("expire", Expire("b", ALARM, idle=30, since=990)).rearmed
    assert bench.timers["alarm"].due == 1020


@pytest.mark.parametrize("resting", ["asleep", "running"])
def test_a_default_time_out_does_not_count_while_a_branch_rests(bench: Bench, resting: str) -> None:
    opened(bench)
    if resting == "asleep":
        bench.do("w", Arm(Timer("w", 10_000.0, b"")), place=item(0))
    else:
        bench.lease("w", 10_000, place=item(0))
    bench.now = 1000
    assert bench.do("expire", Expire("b", ALARM, idle=30)).rearmed
    assert bench.timers["alarm"].due == (10_030 if resting == "asleep" else 1030)
    assert bench.do("expire", Expire("b", ALARM)).release == RELEASE


def test_a_time_out_inside_an_item_that_failed_ends_no_branch(bench: Bench) -> None:
    opened(bench, 1, width=2)
    bench.do("x", Settle(-1, error=b'"no"'), place=item(0))
    assert bench.do("expire", Expire("inner", ALARM), place=item(0)) == Answer(dropped=True)
    assert bench.slots() == {}


# --- the law ---

ROOT: Place = ()
places = st.sampled_from([ROOT, item(0), item(1), (*item(0), ("c", 0)), (*item(0), ("c", 1))])
errors = st.sampled_from([None, b'"no"'])
rules = st.builds(
    lambda merge, need: Rule(merge, merge, 3, need, msgspec.structs.replace(ALARM, id=f"alarm {merge}")),
    st.sampled_from(["m", "n"]),
    st.sampled_from([None, 1, 2]),
)
opens = st.builds(
    lambda barrier, total, width, tolerated, window: Open(
        barrier,
        total,
        width,
        RELEASE,
        Policy(tolerated),
        window,
        min(total, window or total),
        refill=b"refill",
    ),
    st.sampled_from(["b", "c"]),
    st.integers(0, 2),
    st.integers(1, 2),
    st.sampled_from([None, 0]),
    st.integers(0, 1),
)
operations: st.SearchStrategy[Sequence[Operation]] = st.one_of(
    st.builds(Settle, st.integers(1, 2)).map(lambda op: [op]),
    st.builds(Settle, st.just(-1), st.just(b"1"), st.just(".0"), st.just("x"), st.just((1,)), errors).map(
        lambda op: [op]
    ),
    st.builds(Settle, st.just(-1)).map(lambda op: [op]),
    st.builds(Settle, st.just(-1), st.just(b"1")).map(lambda op: [Record(b"1"), op]),
    st.builds(ArriveAt, rules, st.integers(0, 2), st.just(b"p")).map(lambda op: [op]),
    st.builds(Skip, rules, st.sampled_from(["x!1", "y!1"]), st.integers(1, 2)).map(lambda op: [op]),
    opens.map(lambda op: [op]),
    st.builds(Extend, st.integers(0, 2), st.booleans(), st.just(b"more"), failure=errors).map(
        lambda op: [op]
    ),
    st.just([Arm(Timer("sleep", 99.0, b""))]),
    st.just([TryAgain(1, Timer("again", 99.0, b""))]),
    st.sampled_from(["b", "c", "m", "n"]).map(lambda target: [Expire(target, ALARM)]),
)


def asked(step: str, place: Place, operations: Sequence[Operation]) -> Commit:
    """What a step asks; a barrier is opened in one scope only, so elsewhere its name is another."""
    (*before, last) = operations
    if isinstance(last, Open) and (last.barrier, place) not in (("b", ROOT), ("c", item(0))):
        last = msgspec.structs.replace(last, barrier=f"{last.barrier}@{scope_key(place)}")
    return Commit(step, place, [*before, last], reads="b" if isinstance(last, Extend) else "")


steps = st.lists(st.tuples(places, operations), min_size=1, max_size=12).map(
    lambda made: [asked(f"step{i}", place, operations) for i, (place, operations) in enumerate(made)]
)
openings = st.sampled_from(
    [Open("b", 2, 1, RELEASE, published=2), Open("b", 0, 1, RELEASE, window=2, refill=b"refill", lazy=True)]
)


@st.composite
def histories(draw: st.DrawFn) -> list[Commit]:
    """What steps ask, each at least once, in an order in which repetitions come any time later."""
    commits = [Commit("s", ROOT, [draw(openings)]), *draw(steps)]
    history: list[Commit] = []
    for i, commit in enumerate(commits):
        history.append(commit)
        history += [commits[j] for j in draw(st.lists(st.integers(0, i), max_size=3))]
    return history


@given(histories())
def test_repeating_any_commit_any_number_of_times_changes_nothing(history: list[Commit]) -> None:
    repeating, once = Bench(), Bench()
    first: dict[str, Answer] = {}
    for commit in history:
        before = repeating.kept()
        (answer,) = repeating.ledger.apply(E, [commit])
        if commit.step not in first:
            (first[commit.step],) = once.ledger.apply(E, [commit])
            assert answer == first[commit.step]
            assert repeating.kept() == once.kept()
            continue
        if isinstance(commit.operations[0], Expire) and first[commit.step] == Answer():
            return  # nothing of that name was there yet, which no timer ever finds
        if isinstance(commit.operations[0], Extend) and first[commit.step] == Answer():
            return  # nobody had been told to read, and nobody reads who was not
        if first[commit.step].gone and not answer.gone:
            return  # its scope was not open yet, where no step ever stands
        assert repeating.kept() == before
        if not answer.gone and not answer.dropped:
            assert what_matters(answer) == what_matters(first[commit.step])


@given(openings, steps)
def test_the_first_repetition_gets_the_answer_of_the_first(opening: Open, commits: list[Commit]) -> None:
    bench = Bench()
    bench.do("s", opening)
    for commit in commits:
        bench.twice(commit.step, *commit.operations, place=commit.place, reads=commit.reads)
