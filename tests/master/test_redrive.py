"""Redrive and fork: what failed runs again, what succeeded does not, and all is as if nothing had failed."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from msgspec import Raw

from rune.core.errors import DefinitionError
from rune.history import History, open_history
from rune.history.executions import Execution
from rune.master.redrive import RedriveError
from rune.master.standing import Wish
from tests.conformance.flows import flow, node
from tests.conformance.generator import Case, cases, random_case
from tests.conformance.reference import Reference, Result, TooLarge
from tests.master.mending import Mending, compiled, mending

CASES = int(os.environ.get("RUNE_SIM_EXAMPLES", "60"))
"""Random workflows that are mended."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Mending]:
    async with mending(tmp_path) as made:
        yield made


CHAIN = flow(
    [node("a", "effect", of="a"), node("b", "boom", mends=True), node("c", "effect", of="{{ $a.done }}")],
    "a > b > c",
)
ITEMS = flow(
    [
        node("s", "split", input_array="$trigger.items", label="{{ $item.name }}"),
        node("a", "effect", of="$item.v"),
        node("b", "boom", when="{{ $item.v > 1 }}", mends=True),
        node("g", "aggregator", collect="{{ $a.done }}"),
    ],
    "s > a > b > g",
)
INPUT = {"items": [{"name": f"item {v}", "v": v} for v in range(4)]}


async def steps(rig: Mending, execution: Execution) -> dict[str, list[tuple[str, bool]]]:
    """Of each node's steps, whether they succeeded and whether they were reused."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for step in await rig.history.steps.scan(execution.id):
        reused = bool((step.details or {}).get("reused"))
        found.setdefault(step.node_id, []).append((step.status, reused))
    return {id: sorted(of) for id, of in found.items()}


async def barrier(rig: Mending, execution: Execution) -> str:
    (row,) = await rig.history.database.fetch(
        "SELECT barrier FROM history_split WHERE execution_id = $1", execution.id
    )
    return str(row["barrier"])


# --- redrive -----------------------------------------------------------------------------------------------


async def test_only_what_failed_runs_again(rig: Mending) -> None:
    failed = await rig.first(CHAIN)
    assert failed.status == "halted"
    rig.world.broken = False
    again = await rig.again(failed)
    assert again.status == "completed"
    assert (await rig.context(again.id))["$c"] == {"done": "a", "attempt": 1}
    assert await steps(rig, again) == {
        "a": [("success", True)],
        "b": [("success", False)],
        "c": [("success", False)],
    }
    assert set(rig.world.done.values()) == {1}
    await rig.finished(again.id)


async def test_the_new_execution_is_linked_to_the_old_one(rig: Mending) -> None:
    failed = await rig.first(CHAIN, {"x": 1})
    again = await rig.again(failed)
    rig.world.broken = False
    last = await rig.again(again)
    assert [(e.parent, e.root, e.trigger) for e in (again, last)] == [
        (failed.id, failed.id, "redrive"),
        (again.id, failed.id, "redrive"),
    ]
    assert last.status == "completed"
    assert msgspec.json.decode(last.input or b"") == {"x": 1}
    assert (await steps(rig, last))["a"] == [("success", True)]
    assert set(rig.world.done.values()) == {1}


async def test_a_step_that_runs_again_has_another_idempotency_key(rig: Mending) -> None:
    rig.world.broken = False
    first = await rig.first(CHAIN)
    again = await rig.again(first, Wish(fork="b"))
    await rig.again(again, Wish(fork="b"))
    assert len(set(rig.world.keys["b"])) == 3


async def test_failed_items_run_again_and_stand_in_their_slots(rig: Mending) -> None:
    first = await rig.first(ITEMS, INPUT)
    assert first.status == "completed"
    assert (await rig.context(first.id))["$g"]["failed"] == 2
    rig.world.broken = False
    again = await rig.again(first, Wish(barrier=await barrier(rig, first)))
    result = (await rig.context(again.id))["$g"]
    assert (result["aggregated"], result["failed"]) == ([0, 1, 2, 3], 0)
    assert await steps(rig, again) | {"s": [], "g": []} == {
        "s": [],
        "a": [("success", True)] * 4,
        "b": [("success", False)] * 2 + [("success", True)] * 2,
        "g": [],
    }
    assert set(rig.world.done.values()) == {1}


async def test_of_the_failed_items_some_can_be_chosen(rig: Mending) -> None:
    first = await rig.first(ITEMS, INPUT)
    rig.world.broken = False
    again = await rig.again(first, Wish(barrier=await barrier(rig, first), items=(3,)))
    result = (await rig.context(again.id))["$g"]
    assert result["aggregated"][2]["error"]["code"] == "BOOM"
    assert [result["aggregated"][i] for i in (0, 1, 3)] == [0, 1, 3]
    assert (await steps(rig, again))["b"] == [
        ("failed", True),
        ("success", False),
        ("success", True),
        ("success", True),
    ]
    # What was left out can be redriven from there.
    last = await rig.again(again)
    assert (await rig.context(last.id))["$g"]["aggregated"] == [0, 1, 2, 3]
    assert set(rig.world.done.values()) == {1}


async def test_an_edited_item_runs_anew_with_its_new_value(rig: Mending) -> None:
    first = await rig.first(ITEMS, INPUT)
    edits = {2: Raw(b'{"name": "edited", "v": 0.5}')}
    again = await rig.again(first, Wish(barrier=await barrier(rig, first), items=(), edits=edits))
    result = (await rig.context(again.id))["$g"]
    assert [result["aggregated"][i] for i in (0, 1, 2)] == [0, 1, 0.5]
    assert result["aggregated"][3]["error"]["code"] == "BOOM"
    assert (await steps(rig, again))["a"] == [("success", False), *[("success", True)] * 3]


async def test_what_was_edited_stays_so_when_it_is_redriven_in_turn(rig: Mending) -> None:
    first = await rig.first(ITEMS, INPUT)
    where = await barrier(rig, first)
    again = await rig.again(first, Wish(barrier=where, edits={2: Raw(b'{"name": "edited", "v": 20}')}))
    rig.world.broken = False
    last = await rig.again(again)
    assert (await rig.context(last.id))["$g"]["aggregated"] == [0, 1, 20, 3]
    again = await rig.again(last, Wish(barrier=where, edits={3: Raw(b'{"name": "too", "v": 30}')}))
    assert (await rig.context(again.id))["$g"]["aggregated"] == [0, 1, 20, 30]


async def test_the_input_can_be_edited(rig: Mending) -> None:
    shown = flow(
        [node("a", "effect"), node("b", "boom", when="{{ $trigger.bad }}"), node("c", "note", of="$trigger")],
        "a > b > c",
    )
    failed = await rig.first(shown, {"bad": True})
    again = await rig.again(failed, input=Raw(b'{"bad": false}'))
    assert again.status == "completed"
    assert (await rig.context(again.id))["$c"] == {"bad": False}
    assert (await steps(rig, again))["a"] == [("success", True)]


async def test_a_failure_that_the_workflow_dealt_with_stands_unless_its_node_is_named(rig: Mending) -> None:
    dealt = flow(
        [
            node("a", "boom", mends=True, error={"type": "branch"}),
            node("good", "note", of="good"),
            node("bad", "effect", of="bad"),
            node("b", "boom", mends=True),
        ],
        "a > good > b",
        "a:error > bad > b",
    )
    failed = await rig.first(dealt)
    rig.world.broken = False
    again = await rig.again(failed)
    found = await rig.context(again.id)
    assert "$good" not in found
    assert (await steps(rig, again))["a"] == [("failed", True)]
    named = await rig.again(failed, Wish(node="a"))
    assert (await rig.context(named.id))["$good"] == "good"


async def test_a_wait_that_is_over_is_not_waited_again(rig: Mending) -> None:
    waits = flow([node("w", "wait", amount=1000), node("b", "boom", mends=True)], "w > b")
    failed = await rig.first(waits)
    rig.world.broken = False
    at = rig.clock.now
    again = await rig.again(failed)
    assert rig.clock.now == at
    before, after = await rig.context(failed.id), await rig.context(again.id)
    assert after["$w"] == before["$w"]


async def test_a_wait_that_was_cut_off_ends_when_it_would_have(rig: Mending) -> None:
    waits = flow(
        [node("w", "wait", amount=1000), node("n", "wait", amount=10), node("b", "boom", mends=True)],
        "n > b",
    )
    at = rig.clock.now
    failed = await rig.first(waits)
    assert (failed.status, rig.clock.now) == ("halted", at + 10)
    rig.world.broken = False
    again = await rig.again(failed)
    assert (again.status, rig.clock.now) == ("completed", at + 1000)


async def test_large_outputs_are_handed_on(rig: Mending) -> None:
    large = flow(
        [
            node("a", "effect", of="{{ $trigger.text }}"),
            node("b", "boom", mends=True),
            node("c", "note", of="{{ $a.done | length }}"),
        ],
        "a > b > c",
    )
    failed = await rig.first(large, {"text": "x" * 100_000})
    rig.world.broken = False
    again = await rig.again(failed)
    assert (await rig.context(again.id))["$c"] == 100_000
    assert (await steps(rig, again))["a"] == [("success", True)]


async def test_a_step_whose_output_is_no_more_runs_again_and_that_is_said(rig: Mending) -> None:
    failed = await rig.first(
        flow([node("a", "effect", of="{{ $trigger }}"), node("b", "boom", mends=True)], "a > b"),
        {"text": "x" * 2000},
    )
    await rig.history.database.write(("DELETE FROM history_value", [()]))
    rig.world.broken = False
    prepared = await rig.prepared(failed)
    assert [node for _, node in prepared.again] == ["a"]
    await rig.launch(prepared)
    again = await rig.ended(prepared.new.id)
    assert again.status == "completed"
    assert (await steps(rig, again))["a"] == [("success", False)]


async def test_to_start_it_twice_is_to_start_it_once(rig: Mending) -> None:
    failed = await rig.first(ITEMS, INPUT)
    rig.world.broken = False
    prepared = await rig.prepared(failed)
    execution = await rig.launch(prepared)
    await rig.run(until=lambda: len(rig.world.done) > 6)
    seeds = rig.redriving.seeds_of(execution, prepared.flow)
    values = {"$trigger": execution.input or Raw(b"{}")}
    await rig.runtime.start(prepared.flow, execution.id, values, root=execution.root, seeds=seeds)
    again = await rig.ended(execution.id)
    assert (await rig.context(again.id))["$g"]["aggregated"] == [0, 1, 2, 3]
    assert set(rig.world.done.values()) == {1}
    await rig.finished(again.id)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish(node="nobody"), "no node 'nobody'"),
        (Wish(fork="nobody"), "no node 'nobody'"),
        (Wish(items=(1,)), "name its barrier"),
        (Wish(barrier="nothing"), "no split 'nothing'"),
        (Wish(), "has failed"),
    ],
)
async def test_what_cannot_be_is_refused(rig: Mending, wish: Wish, why: str) -> None:
    rig.world.broken = False
    first = await rig.first(CHAIN)
    with pytest.raises(RedriveError, match=why):
        await rig.prepared(first, wish)


async def test_an_item_that_is_not_there_is_refused(rig: Mending) -> None:
    first = await rig.first(ITEMS, INPUT)
    with pytest.raises(RedriveError, match="no item 4"):
        await rig.prepared(first, Wish(barrier=await barrier(rig, first), items=(4,)))


# --- fork --------------------------------------------------------------------------------------------------


async def test_a_fork_runs_from_its_node_on(rig: Mending) -> None:
    rig.world.broken = False
    first = await rig.first(CHAIN)
    forked = await rig.again(first, Wish(fork="b"))
    assert forked.trigger == "fork"
    assert await steps(rig, forked) == {
        "a": [("success", True)],
        "b": [("success", False)],
        "c": [("success", False)],
    }


async def test_a_fork_may_run_another_version(rig: Mending) -> None:
    rig.world.broken = False
    first = await rig.first(CHAIN)
    other = deepcopy(CHAIN)
    other["nodes"][0]["position"] = {"x": 1}
    other["nodes"][2]["parameters"]["of"] = "changed"
    other["nodes"].append(node("d", "effect", of="new"))
    other["edges"].append({"id": "c-d", "src": "c", "dst": "d"})
    forked = await rig.again(first, Wish(fork="b"), flow=compiled(other), version=2)
    found = await rig.context(forked.id)
    assert (found["$c"]["done"], found["$d"]["done"], forked.workflow_version) == ("changed", "new", 2)
    assert (await steps(rig, forked))["a"] == [("success", True)]


async def test_a_node_that_another_version_changed_runs_again(rig: Mending) -> None:
    rig.world.broken = False
    first = await rig.first(CHAIN)
    other = deepcopy(CHAIN)
    other["nodes"][0]["parameters"]["of"] = "changed"
    forked = await rig.again(first, Wish(fork="c"), flow=compiled(other))
    assert (await rig.context(forked.id))["$c"]["done"] == "changed"
    assert (await steps(rig, forked))["b"] == [("success", True)]


# --- whatever the workflow ---------------------------------------------------------------------------------


def _mendable(definition: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definition, its failures that end something being mendable; and what it then means."""
    broken, whole = deepcopy(dict(definition)), deepcopy(dict(definition))
    for made, meant in zip(broken["nodes"], whole["nodes"], strict=True):
        halts = "error" not in made
        if made["type"] == "boom" and halts:
            made["parameters"]["mends"] = True
            meant["x"]["below"] = 0
        elif made["type"] == "effect" and halts and _never_succeeds(made):
            made["parameters"]["mends"] = True
            meant["parameters"]["fails"] = 0
    return broken, whole


def _never_succeeds(effect: Mapping[str, Any]) -> bool:
    return bool(effect["parameters"]["fails"] >= effect["retry"]["attempts"])


def _meaning(case: Case) -> tuple[dict[str, Any], Result] | None:
    definition, input, _ = case
    broken, whole = _mendable(definition)
    try:
        compiled(broken)
        return broken, Reference(whole).run(input, "")
    except (TooLarge, DefinitionError):
        return None


async def _mended(history: History, definition: dict[str, Any], input: Any, expected: Result) -> int:
    """Let a case fail, mend and redrive it, or fork one that does not; how many effects were reused."""
    rig = Mending(history)
    async with rig.running():
        first = await rig.first(definition, input)
        rig.world.broken = False
        ids = [made["id"] for made in definition["nodes"]]
        fork = "" if first.status != "completed" else ids[len(ids) // 2]
        behind = {fork}
        for made in definition["edges"] * len(ids):
            behind |= {made["dst"]} if made["src"] in behind else set()
        prepared = await rig.prepared(first, Wish(fork=fork))
        await rig.launch(prepared)
        again = await rig.ended(prepared.new.id)
        completion = await rig.finished(again.id)
        context = await rig.context(again.id)
        error = msgspec.to_builtins(completion.error) if completion.error else None
        assert expected.allows(completion.status, context, error), (
            f"\nexpected {expected.status} {expected.contexts}"
            f"\ngot      {completion.status} {context} {error}"
        )
        assert not [node for (node, _), count in rig.world.done.items() if count > 1 and node not in behind]
        return sum(reused for of in (await steps(rig, again)).values() for _, reused in of)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_what_was_mended_ends_as_if_it_had_never_failed(case: Case) -> None:
    meaning = _meaning(case)
    assume(meaning is not None)
    assert meaning is not None
    definition, expected = meaning

    async def mend() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with open_history(f"{directory}/history.db") as history:
                await _mended(history, definition, case[1], expected)

    asyncio.run(mend())


async def test_larger_workflows_do_so_too(tmp_path: Path) -> None:
    reused = 0
    async with open_history(str(tmp_path / "history.db")) as history:
        for number in range(CASES):
            case = random_case(number)
            meaning = _meaning(case)
            if meaning is None:
                continue
            try:
                reused += await _mended(history, meaning[0], case[1], meaning[1])
            except Exception as error:
                error.add_note(f"random_case({number})")
                raise
    assert reused > CASES
