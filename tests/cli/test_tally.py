"""What is counted of statuses."""

from __future__ import annotations

import time
from itertools import pairwise

from rune.cli.tally import Row, Tally
from rune.core.result import ordered
from tests.cli.statuses import fan_out, flow, status


def tally_of(*names: str) -> tuple[Tally, dict[str, Row]]:
    """A tally of log nodes in a chain."""
    chain = flow(dict.fromkeys(names, "log"), list(pairwise(names)))
    tally = Tally({}.get)
    return tally, tally.add(chain)


def test_a_node_from_pending_to_success() -> None:
    tally, rows = tally_of("a", "b")
    seen = [rows["a"].state]
    for state in ("running", "success"):
        tally.hear([status("a", state)])
        seen.append(rows["a"].state)
    assert seen == ["pending", "running", "success"]
    assert rows["b"].state == "pending"
    assert rows["b"].ended == "skipped"


def test_a_node_that_fails() -> None:
    tally, rows = tally_of("a")
    tally.hear([status("a", "running"), status("a", "failed", error="no")])
    assert rows["a"].state == "failed"
    assert rows["a"].error is not None
    assert rows["a"].error.message == "no"


def test_a_node_that_rests() -> None:
    tally, rows = tally_of("a")
    resume = {"resume_at": "2026-01-01T00:00:10.000Z"}
    tally.hear([status("a", "running"), status("a", "waiting", details=resume)])
    assert rows["a"].state == "waiting"
    assert rows["a"].resume_at == 1767225610
    tally.hear([status("a", "success")])
    assert (rows["a"].state, rows["a"].resting) == ("success", 0)


def test_a_retry_is_a_rest_and_no_failure() -> None:
    tally, rows = tally_of("a")
    again = {"retry_at": "2026-01-01T00:00:10.000Z", "attempt": 1}
    tally.hear([status("a", "running"), status("a", "failed", error="no", details=again)])
    assert (rows["a"].state, rows["a"].failed) == ("waiting", 0)
    tally.hear([status("a", "running", attempt=2)])
    assert rows["a"].state == "running"
    tally.hear([status("a", "success", attempt=2)])
    assert rows["a"].state == "success"


def test_what_is_first_heard_of_after_a_restart() -> None:
    tally, rows = tally_of("a")
    tally.hear([status("a", "success")])
    assert (rows["a"].state, rows["a"].running) == ("success", 0)


def test_a_workflow_is_found_when_it_is_first_heard_of() -> None:
    found = fan_out()
    tally = Tally({"w": found}.get)
    assert list(tally) == []
    tally.hear([status("outer", "running"), status("nobody", "running")])
    assert [row.node.id for row in tally] == ["outer", "inner", "work", "some", "all"]
    assert Tally({}.get).hear([status("outer", "running")]) is None


def test_nested_fan_outs_add_up() -> None:
    tally = Tally({}.get)
    rows = tally.add(fan_out())
    assert [row.depth for row in rows.values()] == [0, 1, 2, 1, 0]
    tally.hear([status("outer", "running"), status("outer", "success", step="o", count=2)])
    tally.hear(
        [status("inner", "success", step="i1", count=3), status("inner", "success", step="i2", count=4)]
    )
    for done in (1, 2):
        progress = {"processed": done, "total": 3, "failed": 1, "skipped": 0}
        tally.hear([status("some", "waiting", barrier="i1", details=progress)])
    progress = {"processed": 1, "total": 4, "failed": 0, "skipped": 0}
    tally.hear([status("some", "waiting", barrier="i2", details=progress)])
    assert rows["some"].processed == (3, 7, 1, 0)
    assert rows["some"].state == "running"
    assert rows["all"].processed == (0, 2, 0, 0)


def test_a_split_that_does_not_know_its_items_yet_has_those_that_ended() -> None:
    tally = Tally({}.get)
    rows = tally.add(fan_out())
    tally.hear([status("outer", "success", step="o", count=None)])
    assert rows["all"].processed == (0, 0, 0, 0)
    progress = {"processed": 2, "total": None, "failed": 1, "skipped": 0}
    tally.hear([status("all", "waiting", barrier="o", details=progress)])
    assert rows["all"].processed == (2, 2, 1, 0)
    tally.hear([status("all", "success", count=7)])
    assert rows["all"].processed == (7, 7, 1, 0)


def test_a_repeated_split_counts_once() -> None:
    tally = Tally({}.get)
    rows = tally.add(fan_out())
    for _ in range(2):
        tally.hear([status("outer", "success", step="o", count=2)])
    assert rows["all"].processed[1] == 2


def test_an_aggregator_has_ended_when_all_its_barriers_have() -> None:
    tally = Tally({}.get)
    rows = tally.add(fan_out())
    tally.hear([status("outer", "success", step="o", count=2)])
    tally.hear(
        [status("inner", "success", step="i1", count=1), status("inner", "success", step="i2", count=1)]
    )
    tally.hear([status("some", "running"), status("some", "success", count=1)])
    assert rows["some"].state == "running"
    tally.hear([status("some", "running"), status("some", "success", count=1)])
    assert rows["some"].state == "success"
    assert rows["some"].processed == (2, 2, 0, 0)


def test_a_merge_waits_until_it_opens() -> None:
    types = {"a": "log", "b": "log", "c": "log", "m": "merge"}
    tally = Tally({}.get)
    rows = tally.add(flow(types, [("a", "b"), ("a", "c"), ("b", "m"), ("c", "m")]))
    tally.hear([status("m", "running"), status("m", "waiting", details={"arrived": 1, "expected": 2})])
    assert (rows["m"].state, rows["m"].arrived) == ("waiting", (1, 2))
    tally.hear([status("m", "running"), status("m", "success")])
    assert rows["m"].state == "success"


def test_branches_stay_together_in_the_order() -> None:
    types = dict.fromkeys(["start", "left", "right", "far_left", "far_right", "end"], "log")
    edges = [("start", "left"), ("start", "right"), ("left", "far_left"), ("right", "far_right")]
    drawn = ordered(flow(types, [*edges, ("far_left", "end"), ("far_right", "end")]))
    assert drawn == ["start", "left", "far_left", "right", "far_right", "end"]


def test_a_long_chain_is_ordered_without_recursion() -> None:
    names = [f"n{i}" for i in range(3000)]
    assert ordered(flow(dict.fromkeys(names, "log"), list(pairwise(names)))) == names


def test_the_clock_is_read_once_for_a_list() -> None:
    times = iter([1.0, 2.0, 3.0])
    tally = Tally({}.get, lambda: next(times))
    rows = tally.add(flow({"a": "log"}, []))
    tally.hear([status("a", "running")] * 100)
    tally.hear([status("a", "success")] * 100)
    assert (rows["a"].began, rows["a"].changed, rows["a"].succeeded) == (1.0, 2.0, 100)
    assert time.time() > next(times)
