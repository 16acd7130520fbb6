"""One step as it was: its input, its item and its parameters, worked out again from the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune.history.executions import Execution
from rune.master.inspection import Inspected, inspect
from rune.master.standing import Wish
from tests.conformance.flows import flow, node
from tests.master.mending import Mending, compiled, mending


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Mending]:
    async with mending(tmp_path) as made:
        yield made


async def seen(
    rig: Mending, execution: Execution, definition: dict[str, Any], node: str, item: int | None = None
) -> Inspected:
    """What is found of the step of a node, in an item if there are many."""
    steps = [step for step in await rig.history.steps.scan(execution.id) if step.node_id == node]
    if item is not None:
        steps = [step for step in steps if step.lineage and step.lineage[-1].item_index == item]
    (step,) = steps
    return await inspect(rig.history, execution, compiled(definition), step)


def value(raw: Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


async def test_parameters_are_resolved_from_what_led_to_the_step(rig: Mending) -> None:
    chain = flow(
        [
            node("a", "effect", of="{{ $trigger.name }}"),
            node("w", "wait", amount=10),
            node("b", "effect", of="{{ $a.done }} {{ $trigger.n + 1 }}"),
        ],
        "a > w > b",
    )
    execution = await rig.first(chain, {"name": "Ann", "n": 1})
    found = await seen(rig, execution, chain, "b")
    assert found.parameters is not None
    assert (found.parameters["of"], found.exact, found.notes) == ("Ann 2", True, ())
    assert value(found.input)["resume_at"] is not None
    first = await seen(rig, execution, chain, "a")
    assert (first.parameters or {})["of"] == "Ann"
    assert value(first.input) == {"name": "Ann", "n": 1}


async def test_a_step_in_an_item_sees_its_item(rig: Mending) -> None:
    items = flow(
        [
            node("s", "split", input_array="$trigger.rows"),
            node("t", "split", input_array="$item.parts"),
            node("a", "effect", of={"part": "$item", "row": "{{ $items[0].name }}", "at": "$index"}),
            node("h", "aggregator"),
            node("g", "aggregator"),
            node("b", "effect", of="{{ $g.count }}"),
        ],
        "s > t > a > h > g > b",
    )
    rows = [{"name": "x", "parts": [7]}, {"name": "y", "parts": [8, 9]}]
    execution = await rig.first(items, {"rows": rows})
    found = await seen(rig, execution, items, "t", 1)
    assert (value(found.item), (found.parameters or {})["input_array"]) == (rows[1], [8, 9])
    steps = [step for step in await rig.history.steps.scan(execution.id) if step.node_id == "a"]
    last = next(s for s in steps if [f.item_index for f in s.lineage] == [1, 1])
    inner = await inspect(rig.history, execution, compiled(items), last)
    assert (inner.parameters or {})["of"] == {"part": 9, "row": "y", "at": 1}
    assert value(inner.item) == 9
    after = await seen(rig, execution, items, "b")
    assert (after.parameters or {})["of"] == 2


async def test_a_step_behind_a_merge_sees_all_that_came(rig: Mending) -> None:
    merges = flow(
        [
            node("a", "effect", of="a"),
            node("b", "effect", of="b"),
            node("m", "merge"),
            node("c", "effect", of="{{ $a.done ~ $b.done }}"),
        ],
        "a > m > c",
        "b > m",
    )
    execution = await rig.first(merges)
    found = await seen(rig, execution, merges, "c")
    assert (found.parameters or {})["of"] == "ab"
    assert len(value(found.input)["merged"]) == 2


async def test_an_error_path_sees_the_error(rig: Mending) -> None:
    fails = flow(
        [node("a", "boom", error={"type": "branch"}), node("b", "effect", of="{{ $error.code }}")],
        "a:error > b",
    )
    execution = await rig.first(fails)
    found = await seen(rig, execution, fails, "b")
    assert (found.parameters or {})["of"] == "BOOM"


async def test_working_payloads_are_known(rig: Mending) -> None:
    edits = flow(
        [
            node("e", "edit", assignments=[{"name": "x", "value": 5}], mode="keep_only"),
            node("a", "effect", of="{{ $json.x }}"),
        ],
        "e > a",
    )
    execution = await rig.first(edits)
    assert ((await seen(rig, execution, edits, "a")).parameters or {})["of"] == 5


async def test_what_asks_the_clock_is_marked(rig: Mending) -> None:
    clock = flow([node("a", "effect", of="{{ now() }}")])
    execution = await rig.first(clock)
    found = await seen(rig, execution, clock, "a")
    assert found.parameters is not None
    assert not found.exact


async def test_an_output_that_is_no_more_is_said_to_be(rig: Mending) -> None:
    large = flow([node("a", "effect", of="{{ $trigger }}"), node("b", "effect", of="{{ $a.done }}")], "a > b")
    execution = await rig.first(large, {"text": "x" * 2000})
    await rig.history.database.write(("DELETE FROM history_value", [()]))
    found = await seen(rig, execution, large, "b")
    assert found.parameters is None
    assert found.notes[0] == "the output of 'a' is no longer there"


async def test_a_redriven_execution_can_be_inspected_as_well(rig: Mending) -> None:
    items = flow(
        [
            node("s", "split", input_array="$trigger.rows"),
            node("a", "effect", of="$item"),
            node("b", "boom", when="{{ $item > 1 }}"),
            node("g", "aggregator"),
        ],
        "s > a > b > g",
    )
    first = await rig.first(items, {"rows": [1, 2]})
    (row,) = await rig.history.database.fetch("SELECT barrier FROM history_split")
    again = await rig.again(first, Wish(barrier=row["barrier"], edits={1: Raw(b"0")}))
    found = await seen(rig, again, items, "a", 1)
    assert (value(found.item), (found.parameters or {})["of"]) == (0, 0)
    assert value((await seen(rig, again, items, "a", 0)).item) == 1


async def test_credentials_stay_references(rig: Mending) -> None:
    secret = flow([node("h", "http", url="http://127.0.0.1:9/", credentials={"id": "token"})])
    execution = await rig.first(secret)
    found = await seen(rig, execution, secret, "h")
    assert (found.parameters or {})["url"] == "http://127.0.0.1:9/"
    assert "credentials" not in (found.parameters or {})
