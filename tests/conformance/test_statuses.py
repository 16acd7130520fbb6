"""What somebody who watches is told."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.conformance.harness import Rig, flow, node


def details(rig: Rig, node_id: str) -> list[Any]:
    return [s.details for s in rig.statuses if s.node_id == node_id and s.status == "waiting"]


async def test_running_then_success_with_the_output(calm: Rig) -> None:
    execution = await calm.start(flow([node("a", "note", name="First", of={"x": 1})]))
    await calm.run()
    running, success = calm.statuses
    assert (running.status, success.status) == ("running", "success")
    assert (success.workflow_id, success.execution_id, success.node_id) == ("wf", execution, "a")
    assert success.node_name == "First"
    assert msgspec.json.decode(success.output) == {"x": 1}
    assert success.executed_at.endswith("Z")
    assert success.duration_ms >= 0


async def test_failed_with_the_error(calm: Rig) -> None:
    await calm.result(flow([node("bad", "boom")]))
    assert calm.told("bad") == ["running", "failed"]
    error = calm.statuses[-1].error
    assert (error.message, error.code) == ("boom", "BOOM")


async def test_a_wait_is_waiting_then_green_before_its_successor_runs(calm: Rig) -> None:
    """RFC 006 §6.2."""
    await calm.result(flow([node("w", "wait", amount=60), node("n")], "w > n"))
    told = [(s.node_id, s.status) for s in calm.statuses]
    assert told == [("w", "running"), ("w", "waiting"), ("w", "success"), ("n", "running"), ("n", "success")]
    (waiting,) = details(calm, "w")
    assert waiting["resume_at"].endswith("Z")


async def test_a_merge_says_how_many_have_arrived(calm: Rig) -> None:
    """RFC 005 §6.2."""
    await calm.result(flow([node("a"), node("b"), node("c"), node("m", "merge")], "a > m", "b > m", "c > m"))
    # Those of different workers may overtake each other.
    shown = sorted(d["arrived"] for d in details(calm, "m"))
    assert shown == [1, 2]
    assert all(d["expected"] == 3 for d in details(calm, "m"))
    assert calm.told("m").count("success") == 1


async def test_the_aggregator_reports_every_arrival(calm: Rig) -> None:
    """RFC 004 §7.2."""
    definition = flow(
        [node("s", "split", input_array="$trigger"), node("b"), node("g", "aggregator")], "s > b > g"
    )
    await calm.result(definition, list(range(5)))
    shown = [(d["processed"], d["total"]) for d in details(calm, "g")]
    assert sorted(set(shown)) == [(i, 5) for i in range(1, 6)]
    assert calm.told("g").count("success") == 1


async def test_many_arrivals_are_told_of_now_and_then_and_at_the_end(calm: Rig) -> None:
    definition = flow(
        [node("s", "split", input_array="$trigger"), node("b"), node("g", "aggregator")], "s > b > g"
    )
    await calm.result(definition, list(range(500)))
    shown = [d["processed"] for d in details(calm, "g")]
    assert len(shown) < 50
    assert max(shown) == 500


async def test_statuses_carry_the_lineage(calm: Rig) -> None:
    """RFC 004 §7.1."""
    definition = flow(
        [node("s", "split", input_array="$trigger"), node("b"), node("g", "aggregator")], "s > b > g"
    )
    await calm.result(definition, ["x", "y"])
    seen = {
        (f.split_node_id, f.item_index) for s in calm.statuses if s.node_id == "b" for f in s.lineage_stack
    }
    assert seen == {("s", 0), ("s", 1)}


async def test_a_retry_says_when_it_comes(calm: Rig) -> None:
    retry = {"attempts": 2, "delay": 30}
    await calm.result(flow([node("e", "effect", fails=1, retry=retry)]))
    failed = next(s for s in calm.statuses if s.status == "failed")
    assert failed.details["attempt"] == 1
    assert failed.details["retry_at"].endswith("Z")
    assert calm.told("e") == ["running", "failed", "running", "success"]


async def test_the_completion_has_the_fields_of_rfc_001(calm: Rig) -> None:
    execution = await calm.start(flow([node("w", "wait", amount=5)]))
    await calm.run()
    completion = await calm.finished(execution)
    shown = msgspec.json.decode(msgspec.json.encode(completion))
    needed = {"workflow_id", "execution_id", "status", "final_context", "completed_at", "total_duration_ms"}
    assert needed <= shown.keys()
    assert 4999 <= shown["total_duration_ms"] <= 6000
