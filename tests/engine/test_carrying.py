"""Carrying out what was decided: few State calls, large values stored, endings remembered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.messages import branches_of, decode_task
from rune.core.operations import Answer, Ending
from rune.core.outcome import Done, Failed, FanOut, Outcome, Source
from rune.core.step import Step
from rune.engine import carrying
from rune.engine.running import Attempt
from rune.engine.values import LARGE
from tests.core.graphs import NOW, Gather, Scatter, branch, frame, graph, node, plain, raw, step
from tests.engine.bench import EXECUTION, Bench

BODY = graph("s > a > b > g", nodes=(node("s", Scatter), node("g", Gather)))


def done(output: Any) -> Attempt:
    return Attempt(Done(raw(output)), NOW)


class Desk:
    def __init__(self) -> None:
        self.bench = Bench("a")
        self.carrier = self.bench.engine._carrier
        self.calls = self.bench.state.calls

    async def conclude(self, at: Step, outcome: Outcome, **rest: Any) -> list[Any]:
        return await self.carrier.conclude([at], [Attempt(outcome, NOW, **rest)])


@pytest.fixture
def desk() -> Desk:
    return Desk()


def impure(id: str, *type: Any) -> Any:
    """A node whose second run might come out differently."""
    return msgspec.structs.replace(node(id, *type), deterministic=False)


async def test_a_plain_deterministic_step_with_one_successor_makes_no_state_call(desk: Desk) -> None:
    (task,) = await desk.conclude(step(graph("a > b"), "a"), Done(raw(1)))
    assert (task.current_node, plain(task.accumulated_context)) == ("b", {"$a": 1})
    assert desk.calls == []


async def test_what_might_come_out_differently_is_recorded(desk: Desk) -> None:
    at = step(graph("a > b", nodes=(impure("a"),)), "a")
    await desk.conclude(at, Done(raw("first")))
    (task,) = await desk.conclude(at, Done(raw("second")))
    assert plain(task.accumulated_context) == {"$a": "first"}
    assert desk.calls == ["apply", "apply"]


async def test_what_was_replayed_is_not_recorded_again(desk: Desk) -> None:
    at = step(graph("a > b", nodes=(impure("a"),)), "a")
    await desk.conclude(at, Done(raw(1)), replayed=True)
    assert desk.calls == []


async def test_a_whole_batch_asks_state_once(desk: Desk) -> None:
    steps = [step(BODY, "g", branch(f"s{i}", lineage=(frame("s", i),))) for i in range(3)]
    await desk.bench.state.apply(EXECUTION, [])
    desk.calls.clear()
    await desk.carrier.conclude(steps, [Attempt(Failed(ErrorInfo("no", "NO")), NOW)] * 3)
    assert desk.calls == ["apply"]


async def test_a_batch_that_goes_the_same_way_travels_on_together(desk: Desk) -> None:
    task = (await _fan(desk, 3))[0]
    steps = [step(BODY, "a", one) for one in branches_of(task)]
    (on,) = await desk.carrier.conclude(steps, [done(i) for i in range(3)])
    assert (on.current_node, len(on.twigs)) == ("b", 3)


async def _fan(desk: Desk, total: int) -> list[Any]:
    return await desk.conclude(step(BODY, "s"), FanOut(Source(stop=total), batch=total))


async def test_a_fan_out_publishes_its_items_after_its_barrier_is_open(desk: Desk) -> None:
    (task,) = await _fan(desk, 3)
    assert [one.lineage[-1].barrier for one in branches_of(task)] == ["step1"] * 3
    assert desk.calls == ["apply"]


async def test_a_large_output_is_stored_and_recorded_by_where_it_is(desk: Desk) -> None:
    at = step(graph("a > b", nodes=(impure("a"),)), "a")
    (task,) = await desk.conclude(at, Done(raw("x" * LARGE)))
    (ref,) = task.refs
    assert (ref.key, ref.size, task.accumulated_context) == ("$a", LARGE + 2, {})
    record = desk.bench.state.rows.step(EXECUTION, "step1").record
    assert len(record) < 200
    (again,) = await desk.conclude(at, Done(raw("other")))
    assert again.refs == task.refs
    (status, _) = desk.bench.broker.statuses
    assert (status.output, status.output_ref) == (None, ref)


async def test_a_large_working_payload_is_stored_under_both_names(desk: Desk) -> None:
    output = {"$json": "x" * LARGE, "count": 1}
    (task,) = await desk.conclude(step(graph("a > b"), "a"), Done(raw(output), working=True))
    assert [ref.key for ref in task.refs] == ["$a", "$json"]
    layers = await desk.bench.engine.values.load(EXECUTION, task.refs)
    assert plain({ref.key: layers[ref].raw[ref.key] for ref in task.refs}) == {
        "$a": output,
        "$json": "x" * LARGE,
    }


async def test_a_context_that_grows_heavy_is_stored_on_the_way(desk: Desk) -> None:
    of = branch(context={f"$x{i}": "x" * 5000 for i in range(4)})
    (task,) = await desk.conclude(step(graph("a > b"), "a", of), Done(raw(1)))
    assert (task.accumulated_context, len(task.refs)) == ({}, 1)


async def test_an_attempt_to_be_tried_again_rests_in_a_timer(desk: Desk) -> None:
    failed = Failed(ErrorInfo("no", "NO"))
    at = step(graph("a > b"), "a", branch(context={"$t": 1}))
    assert await desk.conclude(at, failed, retry_in=60.0) == []
    (timer,) = desk.bench.state.rows.at(EXECUTION).timers.values()
    again = decode_task(timer.task)
    assert (timer.id, timer.due) == (derive("step1", "~again", "1"), NOW + 60)
    assert (again.current_node, again.step, again.attempt, again.phase) == ("a", "step1", 2, "run")
    assert plain(again.accumulated_context) == {"$t": 1}
    (status,) = desk.bench.broker.statuses
    assert (status.status, status.details["attempt"]) == ("failed", 1)  # type: ignore[index]


async def test_the_end_is_said_once_and_told_to_whoever_wants_to_know(desk: Desk) -> None:
    ended: list[str] = []
    desk.bench.engine.on_end = ended.append
    await desk.conclude(step(graph("a"), "a"), Done(raw(1)))
    await desk.conclude(step(graph("a"), "a"), Done(raw(1)))
    (completion,) = desk.bench.broker.completions_
    assert (completion.status, plain(completion.final_context)) == ("completed", {"$a": 1})
    assert (ended, list(desk.carrier.ended)) == ([EXECUTION], [EXECUTION])


async def test_the_endings_remembered_are_the_latest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told of an ending drops what still runs: the ending must be known then, and for a while."""
    monkeypatch.setattr(carrying, "_REMEMBERED", 3)
    for i in range(50):
        task = msgspec.structs.replace(step(graph("a"), "a").task, execution_id=f"exec{i}")
        await desk.carrier.end(task, Answer(ending=Ending("completed", NOW)))
        assert f"exec{i}" in desk.carrier.ended
        assert len(desk.carrier.ended) <= 3


async def test_branches_of_a_failed_item_are_dropped_and_publish_what_they_close(desk: Desk) -> None:
    (task,) = await _fan(desk, 1)
    (one,) = branches_of(task)
    at = step(BODY, "a", one)
    tasks = await desk.conclude(at, Failed(ErrorInfo("no", "NO")))
    assert [(task.current_node, task.phase) for task in tasks] == [("g", "gather")]
    again = await desk.carrier.drop([at])
    assert again == tasks


async def test_a_barrier_is_opened_in_one_call_with_the_record(desk: Desk) -> None:
    asked: list[Any] = []
    apply = desk.bench.state._of.apply

    async def noting(execution: str, commits: Any) -> Any:
        asked.extend(type(op).__name__ for commit in commits for op in commit.operations)
        return await apply(execution, commits)

    desk.bench.state._of.apply = noting
    flow = graph("s > a", nodes=(impure("s", Scatter),))
    await desk.conclude(step(flow, "s"), FanOut(Source(stop=2)))
    assert asked == ["Record", "Open"]
