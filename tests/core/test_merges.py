"""What a merge does; that doing it again changes nothing, and gives the same answer."""

from __future__ import annotations

import pytest

from rune.core.operations import (
    Answer,
    ArriveAt,
    Skip,
)
from tests.core.bookkeeping import (
    ALARM,
    Bench,
    E,
    forked,
    live,
    rule,
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


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
