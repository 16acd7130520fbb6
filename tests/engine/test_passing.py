"""The commonest steps: done at once, or with one State call for all that came together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.messages import Task
from rune.core.step import Step
from tests.core.graphs import Choice, Plain, node
from tests.engine.bench import EXECUTION, Bench
from tests.engine.nodes import Aggregator, Boom, Effect, Merge, Nap, Split

SPLIT = node("s", Split, input_array="$trigger", batch_size=1)
GATHER = node("g", Aggregator)


async def started(*ways: str, nodes: tuple[Any, ...] = (), input: Any = None) -> Bench:
    """An execution whose workflow the engine has met."""
    bench = Bench(*ways, nodes=nodes)
    await bench.start(input)
    return bench


async def test_a_plain_step_is_done_at_once_just_as_the_long_way_does_it() -> None:
    short = await started("a > b > c", input={"n": 1})
    long = await started("a > b > c", input={"n": 1})
    task = short.engine.at_once(short.take("a"))
    await long.handle("a")
    assert [task] == long.broker.tasks
    assert short.broker.statuses == long.broker.statuses
    assert short.told("a") == ["running", "success"]
    assert short.state.calls == long.state.calls


@pytest.mark.parametrize(
    ("ways", "first"),
    [
        (["a"], node("a")),
        (["a > b", "a > c"], node("a")),
        (["a > b"], node("a", Effect)),
        (["a > b"], node("a", Boom)),
        (["a > b"], node("a", Plain, of="x" * 20_000)),
        (["s > b > g"], SPLIT),
    ],
    ids=["a leaf", "a fork", "an effect", "a failure", "a large output", "a split"],
)
async def test_what_is_more_than_a_plain_step_is_left_alone(ways: list[str], first: Any) -> None:
    nodes = (first, *((GATHER,) if first is SPLIT else ()))
    bench = await started(*ways, nodes=nodes, input=[1])
    delivery = bench.take(first.id)
    calls = list(bench.state.calls)
    assert bench.engine.at_once(delivery) is None
    assert (bench.broker.statuses, bench.broker.tasks, bench.state.calls) == ([], [], calls)


async def test_a_branch_to_a_merge_is_let_down_the_long_way() -> None:
    bench = await started("a:true > m", "a:false > b > m", nodes=(node("a", Choice), node("m", Merge)))
    assert bench.engine.at_once(bench.take("a")) is None


async def test_nothing_is_done_at_once_that_may_have_killed_a_worker_or_should_not_run() -> None:
    bench = await started("a > b")
    delivery = bench.take("a")
    assert bench.engine.at_once(msgspec.structs.replace(delivery, redelivered=True)) is None
    bench.engine.paused = frozenset({EXECUTION})
    assert bench.engine.at_once(delivery) is None
    bench.engine.paused = frozenset()
    bench.engine.ended[EXECUTION] = None
    assert bench.engine.at_once(delivery) is None
    bench.engine.ended.clear()
    assert bench.engine.at_once(delivery) is not None


@pytest.mark.parametrize("last", ["g", "b"], ids=["by themselves", "with the step before"])
async def test_items_that_come_together_arrive_with_one_state_call(last: str) -> None:
    bench = await started("s > b > g", nodes=(SPLIT, node("b", Plain, of="$item"), GATHER), input=[5, 6, 7])
    await bench.handle("s")
    if last == "g":
        for _ in range(3):
            await bench.handle("b")
    calls = len(bench.state.calls)
    steps = [bench.engine.at_once(bench.take(last)) for _ in range(3)]
    tasks = await bench.engine.arrive([step for step in steps if isinstance(step, Step)])
    assert bench.state.calls[calls:] == ["apply"]
    assert [(task.current_node, task.phase) for task in tasks] == [("g", "gather")]
    assert bench.told("b") == ["running", "success"] * 3
    bench.broker.tasks += tasks
    context = await bench.run_through_rest()
    assert context["$g"]["aggregated"] == [5, 6, 7]


async def test_an_item_travels_to_the_workers_of_its_aggregator() -> None:
    gather = msgspec.structs.replace(GATHER, pool="large")
    bench = await started("s > b > g", nodes=(SPLIT, node("b", Plain, of="$item"), gather), input=[5])
    await bench.handle("s")
    task = bench.engine.at_once(bench.take("b"))
    assert isinstance(task, Task)
    assert (task.current_node, task.pool) == ("g", "large")


async def test_a_stored_layer_is_used_if_it_was_read_lately() -> None:
    large = {"text": "x" * 30_000, "n": 1}
    bench = await started("a > b > c", nodes=(node("a", Plain, of="$trigger.n"),), input=large)
    first = bench.take("a")
    assert first.task.refs
    assert bench.engine.at_once(first) is None, "nobody has read it yet"
    await bench.engine.values.load(EXECUTION, first.task.refs)
    task = bench.engine.at_once(first)
    assert isinstance(task, Task)
    assert bytes(task.accumulated_context["$a"]) == b"1"


async def test_a_branch_that_wakes_goes_on_at_once_just_as_the_long_way_does_it() -> None:
    short = await started("a > b", nodes=(node("a", Nap),))
    long = await started("a > b", nodes=(node("a", Nap),))
    for bench in (short, long):
        await bench.handle("a")
        await bench.tick()
    task = short.engine.at_once(short.take("a"))
    await long.handle("a")
    assert [task] == long.broker.tasks
    assert short.broker.statuses == long.broker.statuses
    assert short.told("a") == ["running", "waiting", "success"]
