"""How many items share a message, and how many are under way: it changes nothing but that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.flows import fan_out
from tests.conformance.harness import Rig, flow, node

# --- batches ---

BODY = [
    node("c", "conditional", expression="$item % 3 == 0"),
    node("x", "effect", of="$item", fails=1, retry={"attempts": 2, "delay": 1}),
    node("y", of="{{ $item * -1 }}"),
    node("w", "wait", amount=1),
]


@pytest.mark.parametrize("size", [1, 7, "auto"])
async def test_how_items_share_messages_changes_nothing(rigged: Any, size: Any) -> None:
    definition = flow(
        [node("s", "split", input_array="$trigger", batch_size=size), *BODY, node("g", "aggregator")],
        "s > c",
        "c:true > x > g",
        "c:false > y > w > g",
    )
    definition["nodes"][-1]["parameters"]["collect"] = "$item"
    async with rigged(duplicates=0.2) as rig:
        status, context = await rig.result(definition, list(range(300)))
        assert status == "completed"
        assert context["$g"]["aggregated"] == list(range(300))
        assert rig.world.runs["x"] == 200, "a hundred items, two attempts each, whatever travels together"
        assert len(set(rig.world.keys["x"])) == 100
        batches = [len(t.twigs) for t in rig.tasks if t.current_node == "c" and t.twigs]
        assert max(batches, default=1) == {1: 1, 7: 7, "auto": 4}[size], batches


async def test_a_batch_of_one_is_rfc_004_to_the_letter(rig: Rig) -> None:
    await rig.result(fan_out(node("b"), batch_size=1), list(range(200)))
    tasks = [t for t in rig.tasks if t.current_node == "b"]
    assert len(tasks) == 200
    assert not any(t.twigs for t in tasks)


# --- windows ---


@pytest.mark.parametrize("window", [1, 3, 10])
async def test_never_more_items_in_flight_than_the_window(rigged: Any, window: int) -> None:
    definition = fan_out(
        node("b", "effect", of="$item", steps=5),
        node("w", "wait", amount=1),
        max_concurrency=window,
        batch_size=1,
        gather=node("g", "aggregator", collect="$item"),
    )
    async with rigged(at_once=20, duplicates=0.2) as rig:
        execution = await rig.start(definition, list(range(40)))
        most = await rig.most_between(execution, "b", "g")
        await rig.finished(execution)
        context = await rig.context(execution)
        assert context["$g"]["aggregated"] == list(range(40)), "in order"
        assert most <= window
        assert rig.world.most_inside["b"] <= window


async def test_a_long_range_runs_in_bounded_memory(rigged: Any) -> None:
    gather = node("g", "aggregator", reduce={"n": {"op": "count"}, "total": {"op": "sum", "value": "$item"}})
    definition = fan_out(
        node("b", of="$item"), gather=gather, input_array=None, source={"range": 20_000}, max_concurrency=500
    )
    del definition["nodes"][0]["parameters"]["input_array"]
    async with rigged(duplicates=0.0) as rig:
        execution = await rig.start(definition)
        most = 0

        def look() -> bool:
            nonlocal most
            most = max(most, sum(len(d.task.twigs) or 1 for d in rig.inbox))
            return False

        await rig.run(until=look)
        await rig.finished(execution)
        context = await rig.context(execution)
        assert context["$g"]["reduced"] == {"n": 20_000, "total": sum(range(20_000))}
        assert most <= 500
        assert rig.largest() < 64 * 1024
