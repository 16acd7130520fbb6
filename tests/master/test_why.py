"""Why it is still running: whatever holds an execution is named, with its node and what it waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune.core.messages import NodeStatusMessage
from rune.engine.statuses import iso
from rune.history.executions import NewExecution
from rune.master.why import Hold, Why, why
from tests.conformance.flows import flow, node
from tests.master.mending import Mending, compiled, mending


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Mending]:
    async with mending(tmp_path) as made:
        yield made


async def begun(rig: Mending, definition: dict[str, Any], input: Any = None) -> str:
    """Start an execution and run it as far as it comes without time passing."""
    made = compiled(definition)
    given = Raw(msgspec.json.encode(input or {}))
    new = NewExecution(id=rig.name(), definition=made.definition.decode(), input=given)
    await rig.history.executions.create(new)
    await rig.runtime.start(made, new.id, {"$trigger": given})
    await rig.run(timers=False)
    await rig.record()
    return new.id


async def asked(rig: Mending, id: str, definition: dict[str, Any] | None = None) -> Why:
    execution = await rig.history.executions.get(id)
    assert execution is not None
    found = compiled(definition) if definition else None
    return await why(rig.history, rig.runtime, execution, found)  # type: ignore[arg-type]


def of_kind(found: Why, kind: str) -> list[Hold]:
    return [hold for hold in found.holds if hold.kind == kind]


async def test_a_wait_is_a_timer_with_its_node_and_its_end(rig: Mending) -> None:
    waits = flow([node("w", "wait", amount=100), node("n")], "w > n")
    found = await asked(rig, await begun(rig, waits))
    (hold,) = found.holds
    assert (hold.kind, hold.node, hold.until) == ("timer", "w", rig.clock.now + 100)
    assert "until its time has come" in hold.detail
    (position,) = found.positions
    assert (position.node, position.status, position.step) == ("w", "waiting", hold.step)


async def test_a_wait_for_a_call_says_so(rig: Mending) -> None:
    (hold,) = (await asked(rig, await begun(rig, flow([node("w", "wait", resume="webhook")])))).holds
    assert (hold.until, hold.detail) == (None, "it rests until it is called")


async def test_a_rest_before_the_next_attempt_says_so(rig: Mending) -> None:
    tries = flow([node("a", "effect", fails=2, retry={"attempts": 3, "delay": 50})])
    (hold,) = (await asked(rig, await begun(rig, tries))).holds
    assert (hold.node, hold.until) == ("a", rig.clock.now + 50)
    assert "attempt 2" in hold.detail


async def test_a_fan_out_names_the_items_it_misses(rig: Mending) -> None:
    items = flow(
        [
            node("s", "split", input_array=[0, 1, 2, 3]),
            node("c", "conditional", expression="$item > 1"),
            node("w", "wait", amount=100),
            node("g", "aggregator"),
        ],
        "s > c",
        "c:true > w > g",
        "c:false > g",
    )
    found = await asked(rig, await begun(rig, items), items)
    (hold,) = of_kind(found, "barrier")
    assert hold.node == "g"
    assert "2 of 4 items have ended" in hold.detail
    assert "2, 3" in hold.detail
    resting = [hold for hold in of_kind(found, "timer") if hold.node == "w"]
    assert {hold.scope.rpartition(".")[2] for hold in resting} == {"2", "3"}
    assert {position.node for position in found.positions} == {"w", "g"}


async def test_a_merge_names_the_edges_along_which_nothing_came(rig: Mending) -> None:
    merges = flow(
        [
            node("a"),
            node("b"),
            node("w", "wait", amount=100),
            node("c", "conditional", expression="1 > 2"),
            node("x"),
            node("m", "merge"),
        ],
        "a > b > m",
        "a > w > m",
        "a > c",
        "c:true > x > m",
    )
    found = await asked(rig, await begun(rig, merges), merges)
    (hold,) = of_kind(found, "arrival")
    assert hold.node == "m"
    assert "2 of 3 arrivals" in hold.detail
    assert hold.detail.endswith("nothing came along w-m yet")


async def test_what_a_worker_runs_is_a_lease(rig: Mending) -> None:
    id = await begun(rig, flow([node("w", "wait", resume="webhook")]))
    status = NodeStatusMessage(
        workflow_id="wf",
        execution_id=id,
        node_id="slow",
        status="running",
        executed_at=iso(rig.clock.now),
        duration_ms=0,
        step="s1",
    )
    await rig.history.recording.record([status])
    await rig.state.lease(id, [("s1", ())], 1, rig.clock.now + 60)
    (hold,) = of_kind(await asked(rig, id), "lease")
    assert (hold.node, hold.step, hold.until) == ("slow", "s1", rig.clock.now + 60)


async def test_what_is_paused_says_so(rig: Mending) -> None:
    made = compiled(flow([node("a"), node("b")], "a > b"))
    await rig.history.executions.create(NewExecution(id="e1", definition=made.definition.decode()))
    await rig.runtime.start(made, "e1", {})
    await rig.pause("e1")
    await rig.run()
    (hold,) = (await asked(rig, "e1")).holds
    assert (hold.kind, hold.detail) == ("paused", "it is paused; 1 Tasks are parked until it goes on")


async def test_what_only_a_message_moves_on_says_so(rig: Mending) -> None:
    made = compiled(flow([node("a"), node("b")], "a > b"))
    await rig.history.executions.create(NewExecution(id="e1", definition=made.definition.decode()))
    await rig.runtime.start(made, "e1", {})
    assert [hold.kind for hold in (await asked(rig, "e1")).holds] == ["message"]


async def test_what_state_does_not_know_is_lost_or_not_started(rig: Mending) -> None:
    made = compiled(flow([node("a")]))
    await rig.history.executions.create(NewExecution(id="e1", definition=made.definition.decode()))
    (hold,) = (await asked(rig, "e1")).holds
    assert (hold.kind, hold.detail) == ("message", "it is stored and about to be started")
    await rig.history.executions.set_status("e1", "running", ("pending",))
    assert [hold.kind for hold in (await asked(rig, "e1")).holds] == ["lost"]


async def test_nothing_holds_what_has_ended(rig: Mending) -> None:
    ended = await rig.first(flow([node("a")]))
    assert await asked(rig, ended.id) == Why("completed", [], [])
