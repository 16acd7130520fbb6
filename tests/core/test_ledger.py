"""What each State operation does; that doing it again changes nothing, and gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.backends.memory import MemoryRows
from rune.core.ledger import Ledger
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
    Progress,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
    TryAgain,
    scope_key,
)
from rune.core.outcome import Policy

E = "exec"
RELEASE = b"release"
ALARM = Timer("alarm", 100.0, b"expire", sleeping=False)


class Bench:
    """A ledger on dictionaries, with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 50.0
        self.rows = MemoryRows(lambda execution, timer: None)
        self.ledger = Ledger(self.rows, lambda: self.now)

    def do(self, step: str, *operations: Operation, place: Place = (), reads: str = "") -> Answer:
        """One commit."""
        (answer,) = self.ledger.apply(E, [Commit(step, place, operations, reads=reads)])
        return answer

    def twice(self, step: str, *operations: Operation, place: Place = (), reads: str = "") -> Answer:
        """One commit and its repetition, which must change nothing and say the same."""
        first = self.do(step, *operations, place=place, reads=reads)
        before = self.kept()
        again = self.do(step, *operations, place=place, reads=reads)
        assert self.kept() == before
        assert what_matters(again) == what_matters(first)
        return first

    def lease(self, step: str, until: float = 60.0, attempt: int = 1, place: Place = ()) -> Lease:
        (lease,) = self.ledger.lease(E, [(step, place)], attempt, until)
        return lease

    @property
    def timers(self) -> dict[str, Timer]:
        return self.rows.at(E).timers

    def slots(self, barrier: str = "b") -> dict[int, Any]:
        slots = self.rows.at(E).barriers[barrier].slots
        return {i: None if data is None else msgspec.json.decode(data) for i, data in slots.items()}

    def kept(self) -> Any:
        """All that is kept, to be compared."""
        found = _builtins(self.rows.at(E))
        found["scopes"] = {key: scope for key, scope in found["scopes"].items() if any(scope.values())}
        return found


def _builtins(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            return [type(value).__name__, *(_builtins(getattr(value, f)) for f in value.__struct_fields__)]
        case dict():
            return {key: _builtins(inner) for key, inner in value.items()}
        case set() | frozenset():
            return sorted(value)
        case list() | tuple():
            return [_builtins(inner) for inner in value]
        case _ if hasattr(value, "__slots__") and not isinstance(value, bytes | str):
            return {name: _builtins(getattr(value, name)) for name in value.__slots__}
    return value


def what_matters(answer: Answer) -> dict[str, Any]:
    """What a caller publishes by; a repeated answer may say besides that the scope is gone."""
    found = {name: getattr(answer, name) for name in ("release", "refill", "ending", "record")}
    return {**found, "opened": set(answer.opened), "dead": set(answer.dead)}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def opened(bench: Bench, total: int = 3, **rest: Any) -> None:
    """A fan-out."""
    fields = {"width": 1, "release": RELEASE, "published": total, **rest}
    bench.twice("s", Open("b", total, **fields))


def item(i: int, barrier: str = "b") -> Place:
    return ((barrier, i),)


def arrive(bench: Bench, i: int, result: Any = None, **rest: Any) -> Answer:
    data = msgspec.json.encode(i if result is None else result)
    return bench.twice(f"item{i}", Settle(-1, data, **rest), place=item(i))


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


# --- fan-outs ---


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


# --- merges ---


def rule(expected: int, need: int | None = None, timer: Timer | None = None) -> Rule:
    return Rule("m", "m", expected, need, timer)


def forked(bench: Bench, branches: int) -> None:
    bench.do("fork", Settle(branches - 1))


def live(bench: Bench) -> int:
    row = bench.rows.scope(E, "")
    assert row is not None
    return row.live


def test_a_merge_opens_with_the_last_arrival_which_goes_on(bench: Bench) -> None:
    forked(bench, 2)
    first = bench.twice("a", ArriveAt(rule(2), 0, b"A"))
    assert (first.opened, first.arrived, live(bench)) == ([], (1, 2), 1)
    last = bench.twice("b", ArriveAt(rule(2), 1, b"B"))
    assert (last.opened, last.arrived, live(bench)) == (["m"], (2, 2), 1)


def test_a_skip_may_open_a_merge(bench: Bench) -> None:
    forked(bench, 2)
    bench.twice("a", ArriveAt(rule(3), 0, b"A"))
    answer = bench.twice("c", Skip(rule(3), "c!1", 1), Skip(rule(3), "c!2", 1))
    assert (answer.opened, answer.dead) == (["m"], [])
    assert live(bench) == 1


def test_a_merge_that_nobody_reaches_is_dead(bench: Bench) -> None:
    assert bench.twice("c", Skip(rule(3), "c!1", 1)).dead == []
    answer = bench.twice("d", Skip(rule(3), "d!1", 2))
    assert (answer.opened, answer.dead) == ([], ["m"])


def test_an_arrival_is_counted_once_whoever_tells_it(bench: Bench) -> None:
    bench.do("c", Skip(rule(2), "x!1", 1))
    assert bench.do("d", Skip(rule(2), "x!1", 1)) == Answer()
    row = bench.rows.merge(E, "m")
    assert row is not None
    assert row.accounted == 1


def test_wait_for_any_opens_with_the_first_and_lets_the_others_end(bench: Bench) -> None:
    forked(bench, 3)
    assert bench.twice("a", ArriveAt(rule(3, 1), 0, b"A")).opened == ["m"]
    assert bench.twice("b", ArriveAt(rule(3, 1), 1, b"B")).opened == []
    assert bench.twice("c", Skip(rule(3, 1), "c!1", 1)) == Answer()
    assert live(bench) == 2
    row = bench.rows.merge(E, "m")
    assert row is not None
    assert (row.winner, row.live) == ("a", 1)


def test_wait_for_n_fails_once_n_are_impossible(bench: Bench) -> None:
    forked(bench, 3)
    bench.do("a", ArriveAt(rule(3, 2), 0, b"A"))
    bench.do("b", Skip(rule(3, 2), "b!1", 1))
    assert bench.twice("c", Skip(rule(3, 2), "c!1", 1)).opened == ["m"]
    row = bench.rows.merge(E, "m")
    assert row is not None
    assert row.state == "impossible"


def test_a_merges_timer_is_armed_at_the_first_live_arrival_and_goes_when_it_opens(bench: Bench) -> None:
    forked(bench, 3)
    bench.do("x", Skip(rule(3, timer=ALARM), "x!1", 1))
    assert bench.timers == {}
    bench.twice("a", ArriveAt(rule(3, timer=ALARM), 0, b"A"))
    assert bench.timers == {"alarm": ALARM}
    bench.twice("b", ArriveAt(rule(3, timer=ALARM), 1, b"B"))
    assert bench.timers == {}


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
