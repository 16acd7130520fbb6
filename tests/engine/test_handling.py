"""One delivery at a time: started, run, held, parked, cancelled, failed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rune.core.errors import EngineError, MessageError
from rune.core.messages import Task, decode_task
from rune.core.ports import Delivery
from rune.core.workflow import Retry
from rune.settings import Settings
from tests.core.graphs import Plain, node, plain, raw, raws
from tests.engine.bench import EXECUTION, Bench
from tests.engine.nodes import Aggregator, Boom, Effect, ManualTrigger, Merge, Nap, Split, World

SPLIT = node("s", Split, input_array="$trigger")
GATHER = node("g", Aggregator)


def hand(at: str, context: dict[str, Any]) -> Task:
    """A message with the RFC's fields only."""
    return Task(
        workflow_id="wf",
        execution_id=EXECUTION,
        current_node=at,
        workflow_definition=raw({"nodes": []}),
        accumulated_context=raws(context),
    )


def worldly(*ways: str, **rest: Any) -> tuple[Bench, World]:
    world = World()
    return Bench(*ways, services={"world": lambda: world}, **rest), world


# --- beginning ---


async def test_every_entry_is_published_once_with_the_payload() -> None:
    bench = Bench("t > a", "t > b", nodes=(node("t", ManualTrigger),))
    await bench.start({"x": 1})
    await bench.start({"x": 1})
    tasks = {task.step: task for task in bench.broker.tasks}
    assert [(task.current_node, task.from_node, task.path) for task in tasks.values()] == [
        ("a", "t", ".0"),
        ("b", "t", ".1"),
    ]
    assert await bench.run_through_rest() == {"$trigger": {"x": 1}, "$a": None, "$b": None}


async def test_a_payload_that_is_too_large_is_refused_at_the_start() -> None:
    bench = Bench("a", settings=Settings(max_value=1000))
    with pytest.raises(EngineError, match=r"the value of \$trigger"):
        await bench.start("x" * 1000)
    assert bench.broker.tasks == []


async def test_a_large_payload_is_stored_at_the_start() -> None:
    bench = Bench("a", nodes=(node("a", Plain, of="$trigger"),))
    await bench.start("x" * 100_000)
    (task,) = bench.broker.tasks
    assert (task.accumulated_context, [ref.key for ref in task.refs]) == ({}, ["$trigger"])
    assert (await bench.final(await bench.run()))["$a"] == "x" * 100_000


# --- written by hand ---


async def test_a_message_written_by_hand_runs_from_where_it_stands() -> None:
    bench = Bench("a > b > m", "c > m", nodes=(node("b", Plain, of="$a"), node("m", Merge)))
    bench.broker.tasks = [hand("b", {"$a": 1})]
    completion = await bench.run()
    assert (await bench.final(completion))["$m"] == {"merged": [1]}
    assert completion.total_duration_ms == 0


async def test_items_written_by_hand_meet_at_their_aggregator() -> None:
    bench = Bench("s > b > g", nodes=(SPLIT, node("b", Plain, of="$item"), GATHER))
    lineage = [
        {"split_node_id": "s", "branch_id": f"exec_s_{i}", "item_index": i, "total_items": 2} for i in (0, 1)
    ]
    for i in (1, 0):
        message = {**plain(hand("b", {"$item": i})), "lineage_stack": [lineage[i]]}
        bench.broker.tasks.append(decode_task(msgspec.json.encode(message)))
    assert (await bench.final(await bench.run()))["$g"]["aggregated"] == [0, 1]


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (hand("nowhere", {}), "no node 'nowhere'"),
        (msgspec.structs.replace(hand("a", {}), execution_id="child_1"), "another execution calls"),
        (msgspec.structs.replace(hand("a", {}), workflow_definition=raw(None)), "no workflow_definition"),
        (msgspec.structs.replace(hand("g", {}), phase="gather", step="x"), "barrier"),
        (msgspec.structs.replace(hand("s", {}), phase="refill", step="x"), "details"),
        (msgspec.structs.replace(hand("g", {}), phase="expire", step="x", details=raw({})), "details"),
        (msgspec.structs.replace(hand("a", {}), phase="wake", step="x"), "wake"),
    ],
)
async def test_a_message_nobody_can_make_sense_of_is_a_message_error(task: Task, reason: str) -> None:
    bench = Bench("s > a > g", nodes=(SPLIT, GATHER))
    with pytest.raises(MessageError, match=reason):
        await bench.engine.handle(Delivery(1, task))


# --- running ---


async def test_an_effect_runs_under_a_lease_and_once() -> None:
    bench, world = worldly("a > b", nodes=(node("a", Effect, of=1),))
    await bench.start()
    delivery = bench.take()
    await bench.engine.handle(delivery)
    await bench.engine.handle(msgspec.structs.replace(delivery, redelivered=True))
    assert len(world.keys) == 1
    first, again = bench.broker.tasks
    assert first == again


async def test_whoever_meets_a_running_step_looks_again_when_its_lease_ends() -> None:
    bench, world = worldly("a > b", nodes=(node("a", Effect, of=1),))
    world.gate.clear()
    await bench.start()
    delivery = bench.take()
    running = asyncio.create_task(bench.engine.handle(delivery))
    await world.entered.wait()
    await bench.engine.handle(msgspec.structs.replace(delivery, redelivered=True))
    assert bench.broker.finished
    assert await bench.state.next_due() == bench.clock.now + bench.settings.lease
    world.gate.set()
    await running
    assert len(world.keys) == 1


async def test_a_redelivered_batch_parts() -> None:
    bench = Bench("s > b > g", nodes=(node("s", Split, input_array="$trigger", batch_size=3), GATHER))
    await bench.start([1, 2, 3])
    await bench.handle("s")
    delivery = bench.take("b", redelivered=True)
    assert len(delivery.task.twigs) == 3
    await bench.engine.handle(delivery)
    assert [(task.current_node, task.twigs) for task in bench.broker.tasks] == [("b", ())] * 3
    assert (await bench.final(await bench.run()))["$g"]["count"] == 3


async def test_a_step_that_takes_long_gives_its_delivery_back_and_runs_on() -> None:
    bench, world = worldly("a > b", nodes=(node("a", Effect, of=1),), settings=Settings(hold=0.001))
    world.gate.clear()
    await bench.start()
    running = asyncio.create_task(bench.engine.handle(bench.take()))
    while not bench.broker.finished:
        await asyncio.sleep(0)
    assert await bench.state.next_due() == bench.clock.now + bench.settings.lease
    world.gate.set()
    await running
    assert ([task.current_node for task in bench.broker.tasks], len(bench.broker.finished)) == (["b"], 1)


async def test_a_batch_that_takes_long_gives_its_delivery_back_though_its_steps_end_one_by_one() -> None:
    split = node("s", Split, input_array="$trigger", batch_size=20)
    nodes = (split, node("b", Effect, of="$item"), GATHER)
    bench, world = worldly("s > b > g", nodes=nodes, settings=Settings(hold=0.05))
    world.rest = lambda item: 0.02 * item
    await bench.start(list(range(20)))
    await bench.handle("s")
    running = asyncio.create_task(bench.engine.handle(bench.take("b")))
    while len(bench.broker.finished) < 2:
        await asyncio.sleep(0.001)
    assert not running.done()
    assert len([task for task in bench.broker.tasks if task.current_node == "g"]) < 20
    await running
    assert (await bench.final(await bench.run()))["$g"]["count"] == 20


async def test_a_step_that_is_stopped_was_never_started() -> None:
    bench, world = worldly("a > b", nodes=(node("a", Effect, of=1),))
    world.gate.clear()
    await bench.start()
    delivery = bench.take()
    running = asyncio.create_task(bench.engine.handle(delivery))
    await world.entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    row = bench.state.rows.step(EXECUTION, delivery.task.step)
    assert (row.fence, row.leased_until, bench.broker.finished) == (0, 0.0, [])


async def test_a_failed_attempt_is_tried_again_and_the_third_goes_well() -> None:
    effect = msgspec.structs.replace(node("a", Effect, of=1, fails=2), retry=Retry(3, 10.0))
    bench, world = worldly("a > b", nodes=(effect,))
    started = bench.clock.now
    assert (await bench.run_through())["$a"] == 1
    assert (len(world.keys), len(set(world.keys)), bench.clock.now) == (3, 1, started + 20)
    assert bench.told("a") == ["running", "failed"] * 2 + ["running", "success"]


async def test_a_sleeper_goes_on_when_its_time_has_come() -> None:
    bench = Bench("a > b", nodes=(node("a", Nap, seconds=60), node("b", Plain, of="$a.slept")))
    started = bench.clock.now
    assert (await bench.run_through())["$b"] == 60
    assert bench.clock.now == started + 60
    assert bench.told("a") == ["running", "waiting", "success"]


async def test_a_time_out_of_a_merge_fails_it() -> None:
    nodes = (node("a", Nap, seconds=1000), node("m", Merge, timeout=10))
    bench = Bench("a > m", "b > m", nodes=nodes)
    await bench.start()
    completion = await bench.run()
    assert (completion.status, completion.error and completion.error.code) == ("failed", "MERGE_TIMEOUT")


@pytest.mark.parametrize("edge", ["m-z", "expire", "gather", "again", "busy"])
async def test_any_edge_may_follow_a_join_that_timed_out(edge: str) -> None:
    """Ids of steps are derived from ids of edges, which users choose."""
    nodes = (node("a", Nap, seconds=1000), node("m", Merge, timeout=10, error="ignore"))
    bench = Bench("a > m > z", "b > m", nodes=nodes)
    edges = [
        msgspec.structs.replace(e, id=edge if e.id == "m-z" else e.id) for e in bench.flow.edges.values()
    ]
    bench.flow = type(bench.flow)("wf", bench.flow.nodes.values(), edges)
    await bench.start()
    completion = await bench.run()
    assert (completion.status, "$z" in await bench.final(completion)) == ("completed", True)


# --- ending early ---


async def test_cancelling_ends_the_execution_and_drops_its_tasks() -> None:
    bench = Bench("a > b")
    await bench.start()
    cancel = msgspec.structs.replace(hand("", {}), phase="cancel", details=raw("enough"))
    await bench.engine.handle(Delivery(99, cancel))
    completion = await bench.run()
    assert (completion.status, completion.reason) == ("halted", "enough")
    assert bench.told("a") == []


async def test_a_paused_execution_parks_its_tasks() -> None:
    bench = Bench("a > b")
    await bench.start()
    await bench.state.pause(EXECUTION)
    bench.engine.paused = frozenset({EXECUTION})
    await bench.handle()
    assert (bench.broker.tasks, len(bench.broker.finished)) == ([], 1)
    (parked,) = await bench.state.unpause(EXECUTION)
    bench.engine.paused = frozenset()
    bench.broker.tasks = [decode_task(parked)]
    assert "$b" in await bench.run_through_rest()


async def test_a_task_is_not_parked_once_the_execution_goes_on() -> None:
    bench = Bench("a > b")
    await bench.start()
    bench.engine.paused = frozenset({EXECUTION})
    assert "$b" in await bench.run_through_rest()


async def test_failing_a_task_ends_the_execution_with_the_engines_error() -> None:
    bench = Bench("a > b")
    await bench.start()
    assert await bench.engine.fail(bench.take().task, EngineError("lost", "DEAD_LETTER"))
    (completion,) = bench.broker.completions_
    assert completion.status == "failed"
    assert completion.error is not None
    assert (completion.error.code, completion.error.node) == ("DEAD_LETTER", "a")


async def test_failing_a_batch_fails_its_items_and_what_follows_them_runs() -> None:
    bench = Bench("s > b > g", nodes=(node("s", Split, input_array="$trigger", batch_size=2), GATHER))
    await bench.start([1, 2])
    await bench.handle("s")
    await bench.engine.fail(bench.take("b").task, EngineError("lost", "DEAD_LETTER"))
    gathered = (await bench.final(await bench.run()))["$g"]
    assert [slot["error"]["code"] for slot in gathered["aggregated"]] == ["DEAD_LETTER"] * 2
    told = [status for status in bench.broker.statuses if status.node_id == "b"]
    assert [(status.status, status.lineage_stack[-1].item_index) for status in told] == [
        ("failed", 0),
        ("failed", 1),
    ]
    assert all(status.error is not None and status.error.code == "DEAD_LETTER" for status in told)


async def test_nothing_is_told_of_a_task_whose_execution_has_ended() -> None:
    bench = Bench("a > b")
    await bench.start()
    task = bench.take().task
    assert await bench.engine.fail(task, EngineError("lost", "DEAD_LETTER"))
    bench.broker.statuses.clear()
    assert not await bench.engine.fail(task, EngineError("lost", "DEAD_LETTER"))
    assert bench.broker.statuses == []


async def test_failing_an_item_of_a_window_makes_room_for_the_next() -> None:
    bench = Bench("s > b > g", nodes=(node("s", Split, input_array="$trigger", max_concurrency=1), GATHER))
    await bench.start([1, 2])
    await bench.handle("s")
    await bench.engine.fail(bench.take("b").task, EngineError("lost", "DEAD_LETTER"))
    assert [(task.current_node, task.phase) for task in bench.broker.tasks] == [("s", "refill")]
    assert (await bench.final(await bench.run()))["$g"]["succeeded"] == 1


async def test_an_item_that_fails_leaves_the_others_alone() -> None:
    nodes = (SPLIT, node("b", Boom, when="{{ $item == 2 }}"), GATHER)
    bench = Bench("s > b > g", nodes=nodes)
    gathered = (await bench.run_through([1, 2, 3]))["$g"]
    assert [slot if slot == "calm" else slot["error"]["code"] for slot in gathered["aggregated"]] == [
        "calm",
        "BOOM",
        "calm",
    ]


async def test_tasks_of_an_ended_execution_are_dropped_unseen() -> None:
    bench = Bench("a")
    await bench.start()
    delivery = bench.take()
    await bench.engine.handle(delivery)
    bench.state.calls.clear()
    await bench.engine.handle(delivery)
    assert (bench.state.calls, len(bench.broker.finished), len(bench.broker.completions_)) == ([], 2, 1)


async def test_a_definition_is_compiled_once() -> None:
    bench = Bench("a > b")
    compiled: list[bytes] = []

    def compile(definition: bytes) -> Any:
        compiled.append(definition)
        return bench.flow

    bench.engine._flows._compile = compile
    bench.broker.tasks = [hand("a", {})]
    await bench.run()
    assert compiled == [b'{"nodes":[]}']


async def test_an_execution_that_state_has_lost_is_failed_rather_than_left_hanging() -> None:
    bench = Bench("a > b")
    await bench.start()
    await bench.handle()
    (task,) = bench.broker.tasks
    bench.broker.tasks = [msgspec.structs.replace(task, epoch="before")]
    completion = await bench.run()
    assert (completion.status, completion.error and completion.error.code) == ("failed", "STATE_LOST")
