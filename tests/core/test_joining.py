"""What a step has to say to the merges behind it: that it arrives, or that it never will."""

from __future__ import annotations

import msgspec
import pytest

from rune.core.messages import decode_task
from rune.core.operations import Answer, ArriveAt, Record, Settle, Skip
from rune.core.outcome import Done, Join
from rune.core.step import Limits, Snapshot
from tests.core.deciding import drive, ended, merge_id, where
from tests.core.graphs import (
    NOW,
    Choice,
    Meet,
    Scatter,
    branch,
    frame,
    graph,
    node,
    plain,
    raw,
    step,
)

# --- dead paths ---

DIAMOND = graph("c:true > a > m", "c:false > b > m > z", nodes=(node("c", Choice), node("m", Meet)))


def test_the_merge_behind_an_edge_that_is_not_taken_is_told() -> None:
    asked, follow = drive(step(DIAMOND, "c"), Done(raw(1), "true"))
    ((skip,),) = asked
    assert isinstance(skip, Skip)
    assert (skip.rule.merge, skip.rule.node, skip.rule.expected, skip.weight) == (merge_id("m"), "m", 2, 1)
    assert skip.rule.timer is None
    assert skip.member == "step1!c-b-false"
    assert where(follow) == ["a"]


def test_a_skip_that_opens_a_merge_publishes_what_follows_it() -> None:
    asked, follow = drive(step(DIAMOND, "c"), Done(raw(1), "true"), Answer(opened=[merge_id("m")]))
    assert [[type(op) for op in ops] for ops in asked] == [[Skip], [Settle]]
    assert asked[1] == [Settle(1, None, "", "c")]
    (task,) = follow.tasks
    assert (task.current_node, task.step, task.phase) == ("m", merge_id("m"), "gather")
    assert where(follow) == ["a"]


def test_a_leaf_that_opens_a_merge_hands_over_to_it_and_leaves_what_it_knew() -> None:
    opened = Answer(opened=[merge_id("m"), merge_id("m")])
    (skips, (settle,)), follow = drive(step(DIAMOND, "c"), Done(raw(1), None), opened)
    assert [type(op) for op in skips] == [Skip, Skip]
    assert isinstance(settle, Settle)
    assert (settle.change, ended(settle.end)) == (0, {"$c": 1})
    assert len(follow.tasks) == 1


def test_a_dead_merge_is_passed_on_and_the_count_changes_last() -> None:
    flow = graph(
        "c:true > a > m",
        "c:false > b > m > n > z",
        "x > n",
        nodes=(node("c", Choice), node("m", Meet), node("n", Meet)),
    )
    at = step(flow, "c", recorded=b"1")
    asked, follow = drive(
        at, Done(raw(1), None), Answer(dead=[merge_id("m")]), Answer(opened=[merge_id("n")])
    )
    (record, *first), (second,), (last,) = asked
    assert isinstance(record, Record)
    assert [op.rule.node for op in first if isinstance(op, Skip)] == ["m", "m"]
    assert isinstance(second, Skip)
    assert (second.rule.node, second.member) == ("n", f"{merge_id('m')}!m-n")
    assert isinstance(last, Settle)
    assert last.change == 0
    assert [task.current_node for task in follow.tasks] == ["n"]


def test_a_dead_end_settles_after_the_cascade() -> None:
    asked, _ = drive(step(DIAMOND, "c"), Done(raw(1), None), Answer(dead=[merge_id("m")]))
    assert [[type(op) for op in ops] for ops in asked] == [[Skip, Skip], [Settle]]


def test_a_merge_inside_an_item_is_another_one_for_each_item() -> None:
    flow = graph(
        "s > c:true > a > m",
        "c:false > b > m",
        nodes=(node("s", Scatter), node("c", Choice), node("m", Meet)),
    )
    merges = set()
    for item in (0, 1):
        ((skip,),), _ = drive(step(flow, "c", branch(lineage=(frame("s", item),))), Done(raw(1), "true"))
        assert isinstance(skip, Skip)
        merges.add(skip.rule.merge)
    assert len(merges) == 2


# --- merges ---


def test_an_arrival_brings_its_context_and_the_edge_it_came_along() -> None:
    of = branch(context={"$b": 1}, edge="b-m", from_node="b", path=".1")
    ((arrival,),), follow = drive(step(DIAMOND, "m", of), Join())
    assert isinstance(arrival, ArriveAt)
    assert (arrival.order, arrival.rule.merge, arrival.rule.expected) == (1, merge_id("m"), 2)
    snapshot = msgspec.json.decode(arrival.payload, type=Snapshot)
    assert (plain(snapshot.context), snapshot.path, snapshot.from_node) == ({"$b": 1}, ".1", "b")
    assert follow.tasks == []


def test_the_arrival_that_opens_a_merge_publishes_it() -> None:
    _, follow = drive(step(DIAMOND, "m"), Join(), Answer(opened=[merge_id("m")]))
    (task,) = follow.tasks
    assert (task.current_node, task.phase, task.step) == ("m", "gather", merge_id("m"))
    assert task.accumulated_context == {}


@pytest.mark.parametrize(("timeout", "due", "idle"), [(None, NOW + 50, 50.0), (7, NOW + 7, None)])
def test_a_merge_has_a_timer_from_its_first_arrival(
    timeout: float | None, due: float, idle: float | None
) -> None:
    flow = graph("a > m", "b > m", nodes=(node("m", Meet, count=1, timeout=timeout),))
    ((arrival,),), _ = drive(step(flow, "m", limits=Limits(50)), Join())
    assert isinstance(arrival, ArriveAt)
    timer = arrival.rule.timer
    assert timer is not None
    assert (arrival.rule.need, timer.due, timer.sleeping) == (1, due, False)
    task = decode_task(timer.task)
    assert (task.current_node, task.phase, task.step) == ("m", "expire", timer.id)
    assert plain(task.details) == {"target": merge_id("m"), "idle": idle}
