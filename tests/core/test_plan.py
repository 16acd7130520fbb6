"""What follows a step: what it asks of State, and what it then publishes."""

from __future__ import annotations

import msgspec
import pytest

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.messages import Task, decode_task, encode
from rune.core.operations import Answer, Arm, End, Ending, Record, Settle
from rune.core.outcome import Done, Failed, Sleep
from rune.core.plan import pass_on, simply
from rune.core.scope import unwrapped
from rune.core.step import followed
from tests.core.deciding import ERROR, ITEM, drive, ended, where
from tests.core.graphs import (
    NOW,
    Choice,
    Meet,
    Scatter,
    branch,
    graph,
    node,
    plain,
    raw,
    raws,
    step,
)

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
