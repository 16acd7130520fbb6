"""Calls: started once, told once, whatever comes twice or too late."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.errors import EngineError, NodeError
from rune.core.ids import child_of, derive
from rune.core.messages import Caller, CompletionMessage, Task
from rune.core.plan import call_key
from rune.core.registry import Registry
from rune.engine.calling import Ended
from rune.engine.values import LARGE
from rune.formats.definition import compile_definition
from rune.nodes import load_builtin
from tests.engine.bench import EXECUTION, Bench

REGISTRY = Registry(load_builtin())
CHILD = {
    "workflow_id": "child",
    "nodes": [{"id": "say", "type": "log", "parameters": {"message": "$trigger"}}],
}


def caller(**rest: Any) -> dict[str, Any]:
    """A workflow that calls the other."""
    node = {"id": "call", "type": "workflow", "parameters": {"workflow": "child", "input": "hello"}, **rest}
    return {"workflow_id": "caller", "nodes": [node], "workflows": {"child": CHILD}}


@pytest.fixture
def bench() -> Bench:
    """An engine whose execution calls another."""
    made = Bench("a")
    made.engine._flows._compile = lambda definition: compile_definition(definition, REGISTRY)
    made.flow = made.engine._flows.compiled(msgspec.json.encode(caller()))
    return made


async def drain(bench: Bench) -> dict[str, CompletionMessage]:
    """Handle all there is, timers too; how each execution ended."""
    while bench.broker.tasks or await bench.tick():
        if bench.broker.tasks:
            await bench.handle()
    return {completion.execution_id: completion for completion in bench.broker.completions_}


async def started(bench: Bench) -> tuple[Caller, Task]:
    """Start the caller, and let it call; who called, and the first Task of the child."""
    await bench.start()
    await bench.handle("call")
    (task,) = bench.broker.tasks
    assert task.caller is not None
    return task.caller, task


async def test_the_child_is_named_after_the_call_and_knows_its_caller(bench: Bench) -> None:
    by, task = await started(bench)
    assert task.execution_id == child_of(EXECUTION, by.key)
    assert (by.execution, by.workflow) == (EXECUTION, "child")
    timer = await bench.state.timer(EXECUTION, by.key)
    assert timer is not None
    assert (timer.due, timer.sleeping) == (None, True)


async def test_the_timer_is_armed_before_the_child_starts(bench: Bench) -> None:
    await bench.start()
    bench.state.calls.clear()
    await bench.handle("call")
    calls = bench.state.calls
    assert calls.index("apply") < calls.index("put"), "the first thing kept of the child is its caller"


async def test_a_child_that_is_told_of_twice_wakes_its_caller_once(bench: Bench) -> None:
    by, task = await started(bench)
    ended = await drain(bench)
    assert ended[EXECUTION].status == "completed"
    before = len(bench.broker.completions_)
    completion = ended[task.execution_id]
    await bench.engine._calls.tell(task, completion)
    assert await bench.state.timer(EXECUTION, by.key) is None
    assert await bench.state.get(EXECUTION, [derive(by.key, "~result")]) == {}, "who is buried keeps nothing"
    assert (bench.broker.tasks, len(bench.broker.completions_)) == ([], before)


async def test_a_caller_that_state_has_lost_is_not_brought_back_by_its_child(bench: Bench) -> None:
    _, task = await started(bench)
    del bench.state.rows.executions[EXECUTION]
    while bench.broker.tasks:
        await bench.handle()
    assert EXECUTION not in bench.state.rows.executions, "or nobody would ever see that it is lost"
    assert {c.execution_id for c in bench.broker.completions_} == {task.execution_id}


async def test_an_answer_without_a_result_is_an_error_of_the_engine(bench: Bench) -> None:
    by, _ = await started(bench)
    timer = await bench.state.timer(EXECUTION, by.key)
    assert timer is not None
    await bench.state.wake(EXECUTION, by.key, timer.task, bench.clock.now)
    await bench.tick()
    with pytest.raises(EngineError, match="the result of a call is gone"):
        await bench.handle("call")


async def test_a_large_result_is_not_read_to_be_passed_on(bench: Bench) -> None:
    large = {"workflow_id": "child", "nodes": [_saying("x" * (LARGE + 1))]}
    definition = {**caller(), "workflows": {"child": large}}
    bench.flow = bench.engine._flows.compiled(msgspec.json.encode(definition))
    await started(bench)
    ended = await drain(bench)
    (ref,) = ended[EXECUTION].refs
    assert (ref.key, ref.size > LARGE) == ("$call", True)


async def test_a_result_that_is_too_large_is_a_failure(bench: Bench) -> None:
    """Each of its outputs fits, all of them together do not."""
    both = {"workflow_id": "child", "nodes": [_saying("a" * 50), {**_saying("b" * 50), "id": "too"}]}
    bench.flow = bench.engine._flows.compiled(msgspec.json.encode({**caller(), "workflows": {"child": both}}))
    bench.engine.values._max_value = 200
    await bench.start()
    ended = await drain(bench)
    error = ended.pop(EXECUTION).error
    assert error is not None
    assert error.details is not None
    assert (error.code, error.details["error"]["code"]) == ("CHILD_FAILED", "VALUE_TOO_LARGE")
    assert [child.status for child in ended.values()] == ["completed"]


def _saying(message: str) -> dict[str, Any]:
    return {"id": "say", "type": "log", "parameters": {"message": message}}


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (Ended("halted", reason="enough"), "the workflow 'w' was ended: enough"),
        (Ended("halted"), "the workflow 'w' was ended"),
    ],
)
def test_how_a_failure_reads(ended: Ended, message: str) -> None:
    error = ended.failure(Caller("e", "k", "w"))
    assert isinstance(error, NodeError)
    assert (error.message, error.code) == (message, "CHILD_FAILED")
    assert error.details == {"child": child_of("e", "k"), "status": "halted"}


def test_another_attempt_is_another_call() -> None:
    assert len({call_key("s", 1), call_key("s", 2), call_key("t", 1)}) == 3
