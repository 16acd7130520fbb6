"""One workflow calls another: an execution of its own, started once, told once, ended with its caller."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.ids import is_child
from rune.core.messages import CompletionMessage
from tests.conformance.harness import Rig, flow, node
from tests.conformance.test_control import cancel

CHILD = flow([node("work", "effect", of="$trigger"), node("end", of="$work.done")], "work > end")
SLOW = flow([node("nap", "wait", amount=100), node("end", of="$trigger")], "nap > end")
ENDLESS = flow([node("nap", "wait", resume="webhook"), node("end")], "nap > end")
BAD = flow([node("work", "effect", of="$trigger"), node("bad", "boom")], "work > bad")


def calling(child: dict[str, Any], *nodes: dict[str, Any], ways: tuple[str, ...] = (), **rest: Any) -> Any:
    """A workflow whose node `call` calls this one."""
    called = node("call", "workflow", workflow="child", **{"input": "$trigger", **rest})
    return {**flow([called, *nodes], *ways), "workflows": {"child": child}}


def fanned(child: dict[str, Any], **split: Any) -> Any:
    """A workflow that calls this one for every item."""
    return calling(
        child,
        node("each", "split", input_array="$trigger", **split),
        node("all", "aggregator", collect="$call"),
        node("end", of="$all"),
        ways=("each > call > all > end",),
        input="$item",
    )


def children(rig: Rig) -> list[CompletionMessage]:
    """How the executions ended that others have called, one of each."""
    found = {c.execution_id: c for c in rig.completions if is_child(c.execution_id)}
    return list(found.values())


async def finished(rig: Rig, execution: str) -> CompletionMessage:
    """The completion, once all children have ended and left nothing, either."""
    for child in children(rig):
        await rig.finished(child.execution_id)
    return await rig.finished(execution)


# --- results ---


async def test_the_output_of_the_call_is_what_the_last_nodes_gave(rigged: Any) -> None:
    definition = calling(CHILD, node("after", of="$call"), ways=("call > after",))
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(definition, {"x": 1})
        await rig.run()
        assert (await finished(rig, execution)).status == "completed"
        assert (await rig.context(execution))["$after"] == {"x": 1}
        assert rig.world.runs == {"work": 1}
        (child,) = children(rig)
        assert child.caller is not None
        assert (child.caller.execution, child.caller.workflow) == (execution, "child")


async def test_while_it_runs_the_step_waits_and_names_it(calm: Rig) -> None:
    execution = await calm.start(calling(CHILD))
    await calm.run()
    await finished(calm, execution)
    (child,) = children(calm)
    told = [(s.status, s.details) for s in calm.statuses if s.node_id == "call"]
    named = {"child": child.execution_id, "workflow": "child"}
    assert told == [("running", None), ("waiting", named), ("success", named)]


async def test_a_child_with_several_ends_gives_them_by_node(rig: Rig) -> None:
    child = flow([node("a", of=1), node("b", of=2), node("c", of=3)], "a > b", "a > c")
    _, context = await rig.result(calling(child))
    assert context["$call"] == {"b": 2, "c": 3}


async def test_a_large_input_and_a_large_result_travel_by_reference(rig: Rig) -> None:
    text = "x" * 200_000
    child = flow([node("back", of={"text": "$trigger"}), node("twice", of="$back")], "back > twice")
    definition = calling(child, node("after", "digest", of="$call"), ways=("call > after",))
    execution = await rig.start(definition, text)
    await rig.run()
    await finished(rig, execution)
    assert (await rig.context(execution))["$call"] == {"text": text}
    assert rig.largest() < 50_000


async def test_a_child_that_sleeps_lets_its_caller_sleep(rigged: Any) -> None:
    definition = calling(SLOW, node("after", of="$call"), ways=("call > after",))
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(definition, 7)
        await rig.run(timers=False)
        assert not rig.completions
        assert rig.backend.queue() == 0, "nobody waits in a queue"
        await rig.run()
        await finished(rig, execution)
        assert (await rig.context(execution))["$after"] == 7


async def test_three_deep(rigged: Any) -> None:
    definition = calling(calling(calling(CHILD)))
    async with rigged(duplicates=0.5, at_once=3) as rig:
        execution = await rig.start(definition, [1, 2])
        await rig.run()
        await finished(rig, execution)
        assert (await rig.context(execution))["$call"] == [1, 2]
        assert len(children(rig)) == 3
        assert rig.world.runs == {"work": 1}


async def test_every_item_calls_a_child_of_its_own(rigged: Any) -> None:
    async with rigged(duplicates=0.3, at_once=4) as rig:
        execution = await rig.start(fanned(CHILD), list(range(12)))
        await rig.run()
        await finished(rig, execution)
        assert (await rig.context(execution))["$end"]["aggregated"] == list(range(12))
        assert sorted(rig.world.saw["work"]) == list(range(12))
        assert len(children(rig)) == 12


async def test_two_calls_of_one_workflow_are_two_executions(rig: Rig) -> None:
    second = node("again", "workflow", workflow="child", input="$call")
    definition = calling(CHILD, second, ways=("call > again",))
    execution = await rig.start(definition, 5)
    await rig.run()
    await finished(rig, execution)
    assert (await rig.context(execution))["$again"] == 5
    assert rig.world.runs == {"work": 2}


# --- failures ---


@pytest.mark.parametrize("policy", ["halt", "ignore", "branch"])
async def test_a_child_that_fails_fails_the_node_as_its_policy_says(rigged: Any, policy: str) -> None:
    definition = calling(
        BAD,
        node("good", of="went on"),
        node("bad", of="$error.details.error.code"),
        ways=("call > good", "call:error > bad"),
        error={"type": policy},
    )
    async with rigged(duplicates=0.4) as rig:
        execution = await rig.start(definition, 1)
        await rig.run()
        completion = await finished(rig, execution)
        context = await rig.context(execution)
        (child,) = children(rig)
        assert child.status == "halted"
        if policy == "halt":
            assert completion.status == "halted"
            assert completion.error is not None
            assert (completion.error.code, completion.error.node) == ("CHILD_FAILED", "call")
            assert completion.error.details is not None
            assert completion.error.details["child"] == child.execution_id
            assert completion.error.details["error"]["code"] == "BOOM"
        elif policy == "ignore":
            assert context["$good"] == "went on"
            assert context["$call"]["error"]["code"] == "CHILD_FAILED"
        else:
            assert context["$bad"] == "BOOM"
            assert "$good" not in context


async def test_a_failed_child_fails_its_item_only(rigged: Any) -> None:
    child = flow(
        [node("risky", "boom", when="{{ $trigger == 2 }}"), node("end", of="$trigger")], "risky > end"
    )
    async with rigged(duplicates=0.3) as rig:
        execution = await rig.start(fanned(child), [1, 2, 3])
        await rig.run()
        assert (await finished(rig, execution)).status == "completed"
        first, second, third = (await rig.context(execution))["$end"]["aggregated"]
        assert (first, third) == (1, 3)
        assert second["error"]["code"] == "CHILD_FAILED"


async def test_another_attempt_is_another_child(rigged: Any) -> None:
    child = flow([node("work", "effect", of="$trigger"), node("bad", "boom")], "work > bad")
    definition = calling(child, retry={"attempts": 3, "delay": 10}, error={"type": "ignore"})
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(definition, 1)
        await rig.run()
        await finished(rig, execution)
        assert len(children(rig)) == 3
        assert rig.world.runs == {"work": 3}


# --- control ---


async def test_whoever_cancels_the_caller_cancels_the_child(rigged: Any) -> None:
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(calling(calling(ENDLESS)))
        await rig.run(timers=False)
        await rig.publish(cancel(execution))
        await rig.run()
        completion = await finished(rig, execution)
        assert (completion.status, completion.reason) == ("halted", "enough")
        assert [child.status for child in children(rig)] == ["halted", "halted"]
        assert all("waits for it no more" in (child.reason or "") for child in children(rig))


async def test_when_another_branch_halts_the_caller_the_children_end(rigged: Any) -> None:
    definition = calling(
        ENDLESS,
        node("start"),
        node("nap", "wait", amount=5),
        node("bad", "boom"),
        ways=("start > call", "start > nap > bad"),
    )
    async with rigged(duplicates=0.3) as rig:
        execution = await rig.start(definition)
        await rig.run()
        assert (await finished(rig, execution)).status == "halted"
        assert [child.status for child in children(rig)] == ["halted"]


async def test_children_that_items_have_left_behind_end_with_the_caller(rig: Rig) -> None:
    child = flow(
        [
            node("risky", "boom", when="{{ $trigger == 2 }}"),
            node("nap", "wait", resume="webhook"),
        ],
        "risky > nap",
    )
    definition = fanned(child, on_item_error="fail_fast")
    execution = await rig.start(definition, [1, 2, 3])
    await rig.run()
    assert (await finished(rig, execution)).status == "halted"
    assert len(children(rig)) == 3


async def test_a_child_that_is_cancelled_by_itself_fails_its_caller(rigged: Any) -> None:
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(calling(ENDLESS, error={"type": "ignore"}))
        await rig.run(timers=False)
        (child,) = {t.execution_id for t in rig.tasks if is_child(t.execution_id)}
        await rig.publish(cancel(child, "not this one"))
        await rig.run()
        assert (await finished(rig, execution)).status == "completed"
        error = (await rig.context(execution))["$call"]["error"]
        assert error["code"] == "CHILD_FAILED"
        assert "not this one" in error["message"]


async def test_a_paused_caller_goes_on_when_it_is_resumed(rigged: Any) -> None:
    definition = calling(CHILD, node("after", of="$call"), ways=("call > after",))
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(definition, 3)
        await rig.handle_node("call", phase="run")
        await rig.pause(execution)
        await rig.run()
        assert [c.status for c in children(rig)] == ["completed"], "a child is paused by itself only"
        assert not [c for c in rig.completions if c.execution_id == execution]
        await rig.resume(execution)
        await rig.run()
        await finished(rig, execution)
        assert (await rig.context(execution))["$after"] == 3


async def test_a_paused_child_keeps_its_caller_waiting(rig: Rig) -> None:
    execution = await rig.start(calling(CHILD), 3)
    await rig.handle_node("call", phase="run")
    (child,) = {t.execution_id for t in rig.tasks if is_child(t.execution_id)}
    await rig.pause(child)
    await rig.run()
    assert not rig.completions
    await rig.resume(child)
    await rig.run()
    await finished(rig, execution)
    assert rig.world.runs == {"work": 1}


async def test_a_default_time_out_does_not_break_a_call(rig: Rig) -> None:
    """A join waits as long as a branch rests, however long its child takes."""
    child = flow([node("nap", "wait", amount=10, unit="hours"), node("end", of=1)], "nap > end")
    execution = await rig.start(fanned(child), [1, 2])
    await rig.run()
    assert (await finished(rig, execution)).status == "completed"


# --- duplicates ---


async def test_the_call_comes_again_when_all_is_over(rig: Rig) -> None:
    """A duplicate that arrives late starts nothing, and wakes nothing twice."""
    after = node("after", "effect", of="$call")
    definition = calling(CHILD, after, node("nap", "wait", resume="webhook"), ways=("call > after > nap",))
    execution = await rig.start(definition, 1)
    await rig.fill()
    first = rig.pick("call")
    await rig.handle(first)
    await rig.run()
    assert rig.world.runs == {"work": 1, "after": 1}
    await rig.publish(first.task)
    await rig.run()
    assert rig.world.runs == {"work": 1, "after": 1}
    await rig.publish(cancel(execution))
    await rig.run()
    await finished(rig, execution)
