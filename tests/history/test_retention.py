"""What ended long ago is forgotten, all of it, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from rune.core.messages import NodeStatusMessage
from rune.history import History, retention
from rune.history.executions import NewExecution
from rune.history.retention import Retention
from rune.history.workflows import Draft, Workflows
from tests.history.statuses import arrival, completion, status

TABLES = ("execution", "step", "node", "split", "item", "event", "value")


async def sizes(history: History) -> dict[str, int]:
    """How many rows each table has."""
    return {
        table: (await history.database.fetch(f"SELECT COUNT(*) AS n FROM history_{table}"))[0]["n"]
        for table in TABLES
    }


async def test_ended_executions_go_after_their_time_bit_by_bit(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_ROWS", 2)
    monkeypatch.setattr(retention, "_AT_A_TIME", 2)
    large = "x" * 5000
    for i in range(5):
        told = [status(f"a:{n}", "success", execution_id=f"e{i}", output=large) for n in range(5)]
        items = [arrival(n, 5) for n in range(5)]
        await history.recording.record([*told, *(_of(item, f"e{i}") for item in items)])
        if i < 4:
            await history.recording.record([], [completion(execution_id=f"e{i}", at=1000.0 + i)])
    before = await sizes(history)
    forgetting = Retention(history.database, clock=lambda: 2002.5)
    assert await forgetting.sweep(1000.0) == 3
    assert {e.id for e in (await history.executions.list()).items} == {"e3", "e4"}
    after = await sizes(history)
    assert {table: after[table] for table in TABLES if table != "event"} == {
        table: before[table] * 2 // 5 for table in TABLES if table != "event"
    }
    assert await forgetting.sweep(1000.0) == 0


async def test_what_another_execution_is_being_made_of_stays_until_that_one_runs(history: History) -> None:
    for id in ("e1", "e2"):
        await history.recording.record([status("a:0", "success", execution_id=id)])
        await history.recording.record([], [completion(execution_id=id, at=1000.0)])
    await history.executions.create(NewExecution(id="e3", definition="{}", trigger="redrive", parent="e1"))
    # One that was called needs nothing of its caller.
    await history.executions.create(NewExecution(id="e4", definition="{}", trigger="workflow", parent="e2"))
    forgetting = Retention(history.database, clock=lambda: 3000.0)
    assert await forgetting.sweep(1000.0) == 1
    assert await history.executions.get("e1") is not None
    assert not await history.executions.delete("e1")
    assert (await history.steps.list("e1")).items
    await history.executions.set_status("e3", "running", ("pending",))
    assert await forgetting.sweep(1000.0) == 1


async def test_definitions_go_when_nothing_refers_to_them(history: History) -> None:
    now = 1e6
    workflows = Workflows(history.database, clock=lambda: now)
    await workflows.create(Draft(name="w", definition='"kept by a version"'), "w")
    for id in ("e1", "e2"):
        await history.executions.create(NewExecution(id=id, definition=f'"of {id}"'))
    await history.recording.record([], [completion(execution_id="e1", at=1000.0)])
    late = (await history.executions.list()).items[0].created_at + 3000.0
    await Retention(history.database, clock=lambda: late).sweep(10.0)
    assert await _definitions(history) == {'"kept by a version"', '"of e1"', '"of e2"'}
    await Retention(history.database, clock=lambda: late + 3000.0).sweep(10.0)
    assert await _definitions(history) == {'"kept by a version"', '"of e2"'}


async def _definitions(history: History) -> set[str]:
    return {row["text"] for row in await history.database.fetch("SELECT text FROM definition")}


def _of(message: NodeStatusMessage, execution: str) -> NodeStatusMessage:
    return msgspec.structs.replace(message, execution_id=execution)
