"""What follows a step: what it asks of State, and what it then publishes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.messages import Task, decode_task, encode
from rune.core.operations import Answer, Arm, ArriveAt, End, Ending, Open, Operation, Record, Settle, Skip
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Outcome, Policy, Sleep, Source
from rune.core.plan import pass_on, plan, simply
from rune.core.scope import unwrapped
from rune.core.step import Follow, Limits, Snapshot, Step, followed
from tests.core.graphs import (
    NOW,
    Choice,
    Gather,
    Meet,
    Scatter,
    branch,
    frame,
    graph,
    node,
    plain,
    raw,
    raws,
    step,
)

ERROR = ErrorInfo("broken", "BROKEN", node="a")
ITEM = (frame("s", 1),)


def replay(record: bytes) -> Outcome:
    return Done(raw(msgspec.json.decode(record)))


def drive(at: Step, outcome: Outcome, *answers: Answer) -> tuple[list[list[Operation]], Follow]:
    """Answer each question in turn (with nothing special, when the answers run out)."""
    asked: list[list[Operation]] = []
    deciding = plan(at, outcome, replay)
    left = list(answers)
    try:
        asked.append(list(next(deciding)))
        while True:
            asked.append(list(deciding.send(left.pop(0) if left else Answer())))
    except StopIteration as stop:
        assert not left, "not everything was asked"
        return asked, stop.value


def ended(data: bytes | None) -> Any:
    """The context that a branch left."""
    assert data is not None
    return plain(msgspec.json.decode(data, type=Snapshot).context)


def where(follow: Follow) -> list[str]:
    return [edge.dst for edge, _ in follow.children]


# --- going on ---


def test_a_plain_step_with_one_successor_asks_nothing() -> None:
    flow = graph("a > b")
    asked, follow = drive(step(flow, "a", branch(context={"$t": 1}, path=".1")), Done(raw({"x": 2})))
    assert asked == []
    ((edge, child),) = follow.children
    assert (edge.id, child.edge, child.from_node, child.path) == ("a-b", "a-b", "a", ".1")
    assert child.step == derive("step1", "a-b")
    assert plain(child.context.inline()) == {"$t": 1, "$a": {"x": 2}}


def test_a_second_delivery_derives_the_same_children() -> None:
    flow = graph("a > b", "a > c")
    (_, one), (_, again) = drive(step(flow, "a"), Done(raw(1))), drive(step(flow, "a"), Done(raw(1)))
    assert [child.step for _, child in one.children] == [child.step for _, child in again.children]


def test_a_fork_counts_its_branches_and_numbers_their_paths() -> None:
    asked, follow = drive(step(graph("a > b", "a > c", "a > d"), "a"), Done(raw(1)))
    assert asked == [[Settle(2, None, "", "a")]]
    assert where(follow) == ["b", "c", "d"]
    assert [child.path for _, child in follow.children] == [".0", ".1", ".2"]
    assert len({child.step for _, child in follow.children}) == 3


def test_a_leaf_leaves_its_context() -> None:
    ((settle,),), follow = drive(step(graph("a"), "a", branch(context={"$t": 1}, path=".3")), Done(raw(2)))
    assert isinstance(settle, Settle)
    assert (settle.change, settle.path, settle.node) == (-1, ".3", "a")
    assert ended(settle.end) == {"$t": 1, "$a": 2}
    assert follow.children == []


def test_a_leaf_inside_an_item_leaves_nothing() -> None:
    flow = graph("s > a", nodes=(node("s", Scatter),))
    asked, _ = drive(step(flow, "a", branch(lineage=ITEM)), Done(raw(2)))
    assert asked == [[Settle(-1, None, "", "a")]]


def test_only_the_edges_of_its_port_are_followed() -> None:
    flow = graph("c:true > a", "c:false > b", "c:error > e", nodes=(node("c", Choice),))
    asked, follow = drive(step(flow, "c"), Done(raw(1), "false"))
    assert (asked, where(follow)) == ([], ["b"])
    asked, follow = drive(step(flow, "c"), Done(raw(1), None))
    assert ([type(op) for ops in asked for op in ops], where(follow)) == ([Settle], [])


def test_a_working_payload_is_known_as_json_too() -> None:
    _, follow = drive(step(graph("a > b"), "a"), Done(raw({"$json": [1], "count": 1}), working=True))
    assert plain(follow.children[0][1].context.inline()) == {"$a": {"$json": [1], "count": 1}, "$json": [1]}
    assert bytes(unwrapped(raw({"$json": [1], "count": 1}))) == b"[1]"


def test_a_stored_output_goes_by_reference() -> None:
    ref = Ref("h", 100_000, "$a")
    _, follow = drive(
        step(graph("a > b"), "a", branch(context={"$a": "old", "$t": 1})), Done(None, refs=(ref,))
    )
    context = follow.children[0][1].context
    assert (plain(context.inline()), context.refs) == ({"$t": 1}, (ref,))


@pytest.mark.parametrize(
    ("ways", "port", "quick"),
    [
        (["a > b"], "out", True),
        (["a > b", "a:error > e"], "out", True),
        (["a > b", "a:error > m", "x > m"], "out", False),
        (["a > b", "a > c"], "out", False),
        (["a > b"], None, False),
    ],
)
def test_the_short_way_leads_where_the_long_one_does(ways: list[str], port: str | None, quick: bool) -> None:
    at = step(graph(*ways, nodes=(node("m", Meet),) if "x > m" in ways else ()), "a")
    short = pass_on(at, Done(raw(1), port))
    assert (short is not None) == quick
    if short is not None:
        asked, long = drive(at, Done(raw(1), port))
        assert asked == []
        assert [(edge, child.step, plain(child.context.inline())) for edge, child in short.children] == [
            (edge, child.step, plain(child.context.inline())) for edge, child in long.children
        ]
        assert short.outcome == long.outcome


def test_the_short_way_is_for_plain_steps_that_leave_no_record() -> None:
    split = graph("s > b", nodes=(node("s", Scatter),))
    assert pass_on(step(split, "s"), Done(raw(1))) is None
    assert pass_on(step(graph("a > b"), "a", recorded=b"1"), Done(raw(1))) is None
    assert pass_on(step(graph("a > b"), "a"), Failed(ERROR)) is None


# --- what is recorded ---


def test_a_record_goes_into_the_same_call() -> None:
    at = step(graph("a > b", "a > c"), "a", recorded=b"1", fence=2)
    asked, follow = drive(at, Done(raw(1)))
    assert asked == [[Record(b"1", 2), Settle(1, None, "", "a")]]
    asked, follow = drive(step(graph("a > b"), "a", recorded=b"1", fence=2), Done(raw(1)))
    assert (asked, where(follow)) == ([[Record(b"1", 2)]], ["b"])


def test_what_somebody_else_recorded_first_counts() -> None:
    at = step(graph("a > b"), "a", recorded=b'"mine"')
    asked, follow = drive(at, Done(raw("mine")), Answer(record=b'"theirs"'))
    assert asked == [[Record(b'"mine"')]]
    assert plain(follow.children[0][1].context.inline()) == {"$a": "theirs"}
    assert follow.outcome == Done(raw("theirs"))


def test_a_replayed_outcome_asks_again_for_what_it_needs() -> None:
    at = step(graph("a > b", "a > c"), "a", recorded=b'"mine"')
    asked, follow = drive(at, Failed(ERROR), Answer(record=b'"theirs"'))
    assert [[type(op) for op in ops] for ops in asked] == [[Record, End], [Settle]]
    assert where(follow) == ["b", "c"]


@pytest.mark.parametrize("answer", [Answer(gone=True), Answer(dropped=True)])
def test_a_branch_that_is_gone_publishes_nothing(answer: Answer) -> None:
    _, follow = drive(step(graph("a > b", "a > c"), "a"), Done(raw(1)), answer)
    assert (follow.dropped, follow.children, follow.tasks, follow.outcome) == (True, [], [], None)


def test_whoever_closed_something_publishes_it_again_though_it_is_gone() -> None:
    task = Task(workflow_id="w", execution_id="exec", current_node="g", accumulated_context={})
    ending = Ending("completed", NOW)
    answer = Answer(gone=True, release=encode(task), refill=(4, 8), refill_task=encode(task), ending=ending)
    _, follow = drive(step(graph("a"), "a"), Done(raw(1)), answer)
    assert follow.tasks == [task, msgspec.structs.replace(task, cursor=(4, 8))]
    assert (follow.dropped, follow.answer.ending) == (True, ending)


def test_items_are_published_and_a_source_is_read_on_by_a_task_each() -> None:
    task = Task(workflow_id="w", execution_id="exec", current_node="s", accumulated_context={})
    both = Answer(refill=(4, 8), reads=True, refill_task=encode(task))
    assert [made.cursor for made in followed(both).tasks] == [(4, 8), (8, 8)]
    one = Answer(refill=(8, 8), refill_task=encode(task))
    assert [made.cursor for made in followed(one).tasks] == [(8, 8)]


def test_simply_asks_once() -> None:
    deciding = simply(Settle(-1))
    assert next(deciding) == (Settle(-1),)
    with pytest.raises(StopIteration) as stop:
        deciding.send(Answer(dropped=True))
    assert stop.value.value.dropped


# --- failing ---


def test_halt_ends_the_execution() -> None:
    flow = graph("a > b")
    at = step(flow, "a", branch(context={"$t": 1}))
    for outcome, status in ((Failed(ERROR), "halted"), (Failed(ERROR, engine=True), "failed")):
        ((end,),), follow = drive(at, outcome)
        assert isinstance(end, End)
        assert (end.status, msgspec.json.decode(end.error or b"", type=ErrorInfo)) == (status, ERROR)
        assert ended(end.context) == {"$t": 1}
        assert follow.children == []


def test_halt_inside_an_item_fails_the_item() -> None:
    flow = graph("s > a > b", nodes=(node("s", Scatter),))
    asked, follow = drive(step(flow, "a", branch(lineage=ITEM)), Failed(ERROR))
    assert asked == [[Settle(-1, error=msgspec.json.encode(ERROR))]]
    assert follow.children == []


def test_ignore_goes_on_with_the_error_as_the_output() -> None:
    flow = graph("a > b", "a:error > e", nodes=(node("a", error="ignore"),))
    asked, follow = drive(step(flow, "a"), Failed(ERROR))
    assert (asked, where(follow)) == ([], ["b"])
    assert plain(follow.children[0][1].context.inline()) == {"$a": {"error": plain(ERROR)}}


def test_ignore_takes_the_last_of_several_ports() -> None:
    flow = graph("c:true > a", "c:false > b", nodes=(node("c", Choice, error="ignore"),))
    assert where(drive(step(flow, "c"), Failed(ERROR))[1]) == ["b"]


def test_branch_follows_the_error_edges_and_knows_the_error() -> None:
    flow = graph("a > b", "a:error > e", nodes=(node("a", error="branch"),))
    asked, follow = drive(step(flow, "a"), Failed(ERROR))
    assert (asked, where(follow)) == ([], ["e"])
    assert plain(follow.children[0][1].context.inline()) == {
        "$error": plain(ERROR),
        "$a": {"error": plain(ERROR)},
    }


# --- dead paths ---

DIAMOND = graph("c:true > a > m", "c:false > b > m > z", nodes=(node("c", Choice), node("m", Meet)))


def merge_id(id: str) -> str:
    return derive("exec", "", id)


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


# --- fan-outs ---

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


# --- sleeping ---


@pytest.mark.parametrize("until", [NOW + 9, None])
def test_a_sleeper_arms_a_timer_that_wakes_it_where_it_is(until: float | None) -> None:
    of = branch(context={"$t": 1}, lineage=ITEM, path=".2")
    ((arm,),), follow = drive(step(graph("a > b"), "a", of), Sleep(until, raw({"resume_at": "soon"})))
    assert isinstance(arm, Arm)
    assert (arm.timer.id, arm.timer.due, arm.timer.sleeping) == ("step1", until, True)
    wake = decode_task(arm.timer.task)
    assert (wake.current_node, wake.phase, wake.step, wake.path) == ("a", "wake", "step1", ".2")
    assert wake.lineage_stack == ITEM
    assert plain(wake.accumulated_context) == {"$t": 1, "$a": {"resume_at": "soon"}}
    assert (follow.children, follow.tasks) == ([], [])


def test_a_task_for_another_branch_keeps_what_belongs_to_the_execution() -> None:
    at = step(graph("a > b"), "a", branch(context={"$t": 1}))
    at = msgspec.structs.replace(
        at,
        task=msgspec.structs.replace(
            at.task, attempt=3, priority=5, entry="a", cursor=(1, 2), phase="refill"
        ),
    )
    task = at.task_for("b", branch("step2", {"$x": 1}, from_node="a", edge="a-b"))
    assert (task.priority, task.entry, task.definition, task.started_at) == (5, "a", "def", NOW)
    assert (task.attempt, task.cursor, task.phase, task.step) == (1, None, "run", "step2")
    assert task.accumulated_context == raws({"$x": 1})
