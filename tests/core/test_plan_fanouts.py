"""What follows a step that fans out, and the items of it."""

from __future__ import annotations

import msgspec

from rune.core.ids import derive
from rune.core.messages import decode_task, encode
from rune.core.operations import Answer, Open, Operation, Settle, Skip
from rune.core.outcome import Arrive, Done, Failed, FanOut, Policy, Source
from tests.core.deciding import ERROR, ITEM, drive, ended, merge_id, where
from tests.core.graphs import (
    NOW,
    Gather,
    Meet,
    Scatter,
    branch,
    graph,
    node,
    plain,
    raw,
    step,
)

FAN = graph(
    "s > b > g > z", "s:error > e", nodes=(node("s", Scatter), node("g", Gather, timeout=60, keep=False))
)


def opening(asked: list[list[Operation]]) -> Open:
    (found,) = [op for ops in asked for op in ops if isinstance(op, Open)]
    return found


def test_a_split_opens_a_barrier_whose_release_is_the_aggregator() -> None:
    of = branch(context={"$t": 1}, path=".0")
    policy = Policy(tolerated=2)
    asked, follow = drive(step(FAN, "s", of), FanOut(Source(items=[1, 2, 3]), policy))
    (barrier,) = asked[0]
    assert isinstance(barrier, Open)
    assert (barrier.barrier, barrier.total, barrier.width, barrier.published) == ("step1", 3, 1, 3)
    assert (barrier.policy, barrier.window, barrier.keep_results, barrier.refill) == (policy, 0, False, b"")
    release = decode_task(barrier.release)
    assert (release.current_node, release.phase, plain(release.details)) == ("g", "gather", "step1")
    assert (release.step, release.path) == (derive("step1", "~gather"), ".0")
    assert plain(release.accumulated_context) == {"$t": 1, "$s": {"count": 3}}
    assert barrier.timer is not None
    assert (barrier.timer.due, decode_task(barrier.timer.task).current_node) == (NOW + 60, "g")
    assert follow.fan_out == FanOut(Source(items=[1, 2, 3]), policy)


def test_a_window_publishes_the_first_items_and_leaves_a_task_for_the_rest() -> None:
    fan_out = FanOut(Source(start=0, stop=100), window=10)
    asked, _ = drive(step(FAN, "s"), fan_out)
    barrier = opening(asked)
    assert (barrier.window, barrier.published) == (10, 10)
    refill = decode_task(barrier.refill)
    assert (refill.current_node, refill.phase) == ("s", "refill")
    assert msgspec.json.decode(refill.details, type=FanOut) == fan_out


def test_an_item_starts_with_as_many_branches_as_the_split_has_edges() -> None:
    flow = graph("s > a > g", "s > b > g", nodes=(node("s", Scatter), node("g", Gather)))
    assert opening(drive(step(flow, "s"), FanOut(Source(stop=2)))[0]).width == 2


def test_an_empty_fan_out_releases_at_once() -> None:
    release = encode(step(FAN, "s").task)
    asked, follow = drive(step(FAN, "s"), FanOut(Source(items=[])), Answer(release=release))
    assert opening(asked).total == 0
    assert (follow.fan_out, follow.tasks) == (None, [decode_task(release)])


def test_without_an_aggregator_the_split_itself_is_released() -> None:
    flow = graph("s > b", nodes=(node("s", Scatter),))
    barrier = opening(drive(step(flow, "s"), FanOut(Source(stop=2)))[0])
    assert (decode_task(barrier.release).current_node, barrier.keep_results) == ("s", True)
    ((settle,),), follow = drive(step(flow, "s"), Done(raw({"count": 2}), None))
    assert isinstance(settle, Settle)
    assert (settle.change, ended(settle.end), follow.children) == (-1, {"$s": {"count": 2}}, [])


def test_a_split_that_leads_nowhere_is_a_leaf() -> None:
    ((settle,),), follow = drive(step(graph("s", nodes=(node("s", Scatter),)), "s"), FanOut(Source(stop=2)))
    assert isinstance(settle, Settle)
    assert (settle.change, ended(settle.end), follow.fan_out) == (-1, {"$s": {"count": 2}}, None)


def test_a_split_tells_the_merges_behind_its_error_edge() -> None:
    flow = graph(
        "s > b > g > m > z", "s:error > m", nodes=(node("s", Scatter), node("g", Gather), node("m", Meet))
    )
    asked, follow = drive(step(flow, "s"), FanOut(Source(stop=2)), Answer(), Answer(opened=[merge_id("m")]))
    assert [[type(op) for op in ops] for ops in asked] == [[Open], [Skip], [Settle]]
    assert asked[2] == [Settle(1)]
    assert [task.current_node for task in follow.tasks] == ["m"]


def test_a_failed_split_whose_failure_is_ignored_has_no_items() -> None:
    flow = graph("s > b > g > z", nodes=(node("s", Scatter, error="ignore"), node("g", Gather)))
    asked, _ = drive(step(flow, "s"), Failed(ERROR))
    barrier = opening(asked)
    assert (barrier.total, decode_task(barrier.release).current_node) == (0, "g")


def test_a_failed_split_whose_failure_is_ignored_and_has_no_aggregator_ends() -> None:
    flow = graph("s > b", nodes=(node("s", Scatter, error="ignore"),))
    ((settle,),), _ = drive(step(flow, "s"), Failed(ERROR))
    assert isinstance(settle, Settle)
    assert (settle.change, ended(settle.end)) == (-1, {"$s": {"error": plain(ERROR)}})


def test_a_failed_split_may_branch_to_its_error_edge() -> None:
    flow = graph(
        "s > b > g > m > z",
        "s:error > e > m",
        nodes=(node("s", Scatter, error="branch"), node("g", Gather), node("m", Meet)),
    )
    ((skip,),), follow = drive(step(flow, "s"), Failed(ERROR))
    assert isinstance(skip, Skip)
    assert (skip.rule.node, where(follow)) == ("m", ["e"])


def test_an_item_that_reaches_the_aggregator_leaves_its_result() -> None:
    of = branch(lineage=ITEM, path=".1", from_node="b")
    asked, follow = drive(step(FAN, "g", of), Arrive(raw({"x": 1}), (1, 2.5)))
    assert asked == [[Settle(-1, b'{"x":1}', ".1", "b", (1, 2.5))]]
    assert (follow.children, follow.tasks) == ([], [])
