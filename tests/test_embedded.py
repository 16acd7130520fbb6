"""The embedded engine: start, wait, cancel, pause, resume, all in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.embedded import Embedded
from rune.formats.graph import compile_workflow
from rune.nodes import load_builtin
from rune.settings import Settings
from tests.core.graphs import plain
from tests.engine.nodes import Boom, Effect, Nap, World

REGISTRY = Registry([*load_builtin(), Effect, Nap, Boom])


def flow(*nodes: dict[str, Any], edges: list[tuple[str, str]] | None = None) -> Workflow:
    """Nodes one after the other, unless edges say otherwise."""
    ids = [node["id"] for node in nodes]
    ways = edges if edges is not None else list(pairwise(ids))
    made = [{"id": f"{src}-{dst}", "src": src, "dst": dst} for src, dst in ways]
    return compile_workflow({"workflow_id": "greet", "nodes": list(nodes), "edges": made}, REGISTRY)


def node(id: str, type: str, **parameters: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "parameters": parameters}


def edit(id: str, **values: Any) -> dict[str, Any]:
    return node(id, "edit", assignments=[{"name": name, "value": value} for name, value in values.items()])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=["memory", "sqlite"])
async def rune(request: pytest.FixtureRequest, tmp_path: Path, world: World) -> AsyncIterator[Embedded]:
    database = str(tmp_path / "rune.db") if request.param == "sqlite" else None
    async with Embedded.open(Settings(), REGISTRY, database) as opened:
        opened._runner._factories = {**opened._runner._factories, "world": lambda: world}
        yield opened


async def ended(rune: Embedded, execution: str) -> CompletionMessage:
    """How an execution ended; a test must not wait for ever."""
    return await asyncio.wait_for(rune.result(execution), 5)


async def until(come: Callable[[], Awaitable[bool]]) -> None:
    """Let the engine work until this has come."""
    async with asyncio.timeout(5):
        while not await come():
            await asyncio.sleep(0)


async def nothing_live(rune: Embedded) -> bool:
    return not await rune.live()


async def run(rune: Embedded, of: Workflow, input: Any = None, **rest: Any) -> Any:
    completion = await ended(rune, await rune.start(of, input=input, **rest))
    assert completion.status == "completed", completion.error
    return plain(completion.final_context)


async def test_an_execution_runs_to_its_end(rune: Embedded) -> None:
    context = await run(rune, flow(edit("a", hello="{{ $trigger.name }}")), {"name": "you"})
    assert context["$a"]["$json"]["hello"] == "you"
    assert context["$trigger"] == {"name": "you"}


async def test_what_else_the_caller_knows_is_at_hand(rune: Embedded) -> None:
    context = await run(rune, flow(edit("a", x="{{ $extra + 1 }}")), context={"$extra": 1})
    assert context["$a"]["$json"]["x"] == 2
    assert context["$trigger"] == {}


async def test_many_run_at_once(rune: Embedded) -> None:
    of = flow(edit("a", x="{{ $trigger.x * 2 }}"))
    results = await asyncio.gather(*(run(rune, of, {"x": i}) for i in range(20)))
    assert [context["$a"]["$json"]["x"] for context in results] == [i * 2 for i in range(20)]


async def test_a_fan_out_comes_back_in_order(rune: Embedded) -> None:
    of = flow(
        node("s", "split", input_array="$trigger"),
        edit("b", x="{{ $item * 2 }}"),
        node("g", "aggregator", collect="$b['$json'].x"),
    )
    context = await run(rune, of, list(range(300)))
    assert context["$g"]["aggregated"] == [i * 2 for i in range(300)]


async def test_a_failure_says_where_and_why(rune: Embedded) -> None:
    completion = await ended(rune, await rune.start(flow(node("a", "boom"))))
    assert completion.error is not None
    assert (completion.status, completion.error.node, completion.error.code) == ("halted", "a", "BOOM")


async def test_a_result_may_be_asked_for_late_and_by_several(rune: Embedded) -> None:
    execution = await rune.start(flow(edit("a", x=1)))
    first = await ended(rune, execution)
    together = await asyncio.gather(ended(rune, execution), ended(rune, execution))
    assert [completion.execution_id for completion in (first, *together)] == [execution] * 3


async def test_several_wait_for_one_execution(rune: Embedded, world: World) -> None:
    world.gate.clear()
    execution = await rune.start(flow(node("a", "effect")))
    waiting = [asyncio.create_task(ended(rune, execution)) for _ in range(3)]
    await world.entered.wait()
    world.gate.set()
    assert {completion.execution_id for completion in await asyncio.gather(*waiting)} == {execution}


async def test_who_stops_waiting_may_ask_again(rune: Embedded, world: World) -> None:
    world.gate.clear()
    execution = await rune.start(flow(node("a", "effect")))
    impatient = asyncio.create_task(ended(rune, execution))
    await world.entered.wait()
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    world.gate.set()
    await until(lambda: nothing_live(rune))
    assert (await ended(rune, execution)).status == "completed"


async def test_large_values_are_whole_in_the_result(rune: Embedded) -> None:
    context = await run(rune, flow(edit("a", x="{{ $trigger.x }}")), {"x": "y" * 200_000})
    assert context["$a"]["$json"]["x"] == "y" * 200_000


async def test_statuses_are_told(rune: Embedded) -> None:
    told: list[NodeStatusMessage] = []
    rune.listen(told.extend)
    await run(rune, flow(edit("a", x=1), node("b", "nap", seconds=0)))
    assert [(status.node_id, status.status) for status in told] == [
        ("a", "running"),
        ("a", "success"),
        ("b", "running"),
        ("b", "waiting"),
        ("b", "success"),
    ]


async def test_cancelling_stops_what_runs(rune: Embedded, world: World) -> None:
    world.gate.clear()
    execution = await rune.start(flow(node("a", "effect")))
    await world.entered.wait()
    await rune.cancel(execution, "enough")
    completion = await ended(rune, execution)
    assert (completion.status, completion.reason) == ("halted", "enough")
    assert await rune.live() == []


async def test_a_cancelled_execution_is_of_its_workflow(rune: Embedded, world: World) -> None:
    """RFC 001 §6.3: `workflow_id` and `total_duration_ms` are required."""
    world.gate.clear()
    execution = await rune.start(flow(node("a", "effect")))
    await world.entered.wait()
    await rune.cancel(execution)
    completion = await ended(rune, execution)
    assert (completion.workflow_id, completion.execution_id) == ("greet", execution)


async def test_a_sleeping_execution_may_be_cancelled(rune: Embedded) -> None:
    execution = await rune.start(flow(node("a", "nap", seconds=10_000)))
    await rune.cancel(execution)
    assert (await ended(rune, execution)).status == "halted"
    assert await rune.state.next_due() is None


async def test_a_paused_execution_rests_until_it_is_resumed(rune: Embedded, world: World) -> None:
    world.gate.clear()
    told: list[NodeStatusMessage] = []
    rune.listen(told.extend)
    execution = await rune.start(flow(node("a", "effect", of={"n": 1}), edit("b", x=1)))
    await world.entered.wait()
    await rune.pause(execution)
    world.gate.set()
    other = await run(rune, flow(edit("c", x=1)))
    assert other["$c"]

    async def through() -> bool:
        return any(status.node_id == "a" and status.status == "success" for status in told)

    await until(through)
    assert await rune.live() == [execution]
    assert not any(status.node_id == "b" for status in told)
    await rune.resume(execution)
    assert "$b" in plain((await ended(rune, execution)).final_context)


async def test_pausing_what_is_not_there_does_nothing(rune: Embedded) -> None:
    await rune.pause("exec_unknown")
    assert await rune.live() == []
    execution = await rune.start(flow(edit("a", x=1)))
    await ended(rune, execution)
    await rune.pause(execution)
    assert rune.engine.paused == frozenset()


async def test_a_broken_engine_is_said_to_whoever_waits(rune: Embedded, world: World) -> None:
    world.gate.clear()
    execution = await rune.start(flow(node("a", "effect")))
    waiting = asyncio.create_task(ended(rune, execution))
    await world.entered.wait()
    broken = ConnectionError("the disk is full")
    assert rune.worker._broken is not None
    rune.worker._broken.set_exception(broken)
    with pytest.raises(ConnectionError, match="the disk is full"):
        await waiting


async def test_what_a_process_left_is_finished_by_the_next(tmp_path: Path, world: World) -> None:
    database = str(tmp_path / "rune.db")
    world.gate.clear()
    async with Embedded.open(Settings(), REGISTRY, database) as first:
        first._runner._factories = {"world": lambda: world}
        execution = await first.start(flow(node("a", "effect", of={"n": 7}), edit("b", x="{{ $a.n }}")))
        await world.entered.wait()
    world.gate.set()
    async with Embedded.open(Settings(), REGISTRY, database) as second:
        second._runner._factories = {"world": lambda: world}
        assert await second.unfinished() == [execution]
        completion = await ended(second, execution)
        assert plain(completion.final_context)["$b"]["$json"]["x"] == 7
        await second.acknowledge(completion)
    assert len(set(world.keys)) == 1
    async with Embedded.open(Settings(), REGISTRY, database) as third:
        assert await third.unfinished() == []
