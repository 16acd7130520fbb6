"""Executions: stored before they start, found again by what they are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from rune.core.errors import ConflictError, ErrorInfo
from rune.history import History
from rune.history.executions import Filter, NewExecution
from tests.history.statuses import EXECUTION, completion, status


def new(id: str = EXECUTION, **fields: Any) -> NewExecution:
    """An execution to be stored."""
    return NewExecution(id=id, **{"definition": "{}", **fields})


async def test_what_is_asked_for_can_be_read(history: History) -> None:
    asked = new(
        definition='{"v":1}',
        name="nightly",
        workflow_id="w",
        workflow_version=3,
        trigger="schedule",
        input=Raw(b'{"n":1}'),
        priority=5,
        parent="exec_0",
        root="exec_0",
        labels={"team": "a"},
        created_by="ada",
    )
    created = await history.executions.create(asked)
    found = await history.executions.get(EXECUTION)
    assert found is not None
    assert (found.input, created.input) != (None, None)
    assert bytes(found.input or b"") == b'{"n":1}'
    assert (found.status, found.seq, found.root, found.labels) == ("pending", 0, "exec_0", {"team": "a"})
    assert (created.created_at, created.definition_hash) == (found.created_at, found.definition_hash)
    assert await history.executions.definition(EXECUTION) == '{"v":1}'
    assert await history.executions.get("nobody") is None
    assert await history.executions.definition("nobody") is None


async def test_an_id_is_taken_once(history: History) -> None:
    await history.executions.create(new())
    with pytest.raises(ConflictError):
        await history.executions.create_all([new("exec_2"), new()])
    assert await history.executions.get("exec_2") is None


async def test_executions_are_listed_the_newest_first_page_by_page(history: History) -> None:
    for i in range(5):
        await history.executions.create(new(f"exec_{i}"))
    first = await history.executions.list(limit=3)
    rest = await history.executions.list(limit=3, cursor=first.next)
    assert [e.id for e in (*first.items, *rest.items)] == [f"exec_{i}" for i in (4, 3, 2, 1, 0)]
    assert await history.executions.count() == 5


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (Filter(workflow="w1"), {"a"}),
        (Filter(status=["pending", "running"]), {"a", "b"}),
        (Filter(status=["failed"]), {"c"}),
        (Filter(trigger=["webhook"]), {"b"}),
        (Filter(text="NIGHT"), {"a"}),
        (Filter(text="broken"), {"c"}),
        (Filter(parent="a"), {"b"}),
        (Filter(label=("team", "x")), {"a"}),
        (Filter(label=("team", "y")), set()),
        (Filter(since=1e12), set()),
        (Filter(until=1e12, workflow="w1"), {"a"}),
    ],
)
async def test_executions_are_found_by_what_they_are(
    history: History, filter: Filter, found: set[str]
) -> None:
    await history.executions.create(new("a", workflow_id="w1", name="Nightly", labels={"team": "x"}))
    await history.executions.create(new("b", trigger="webhook", parent="a"))
    await history.executions.create(new("c"))
    ended = completion("failed", execution_id="c", error=ErrorInfo("it is broken", "NO"))
    await history.recording.record([], [ended])
    assert {execution.id for execution in (await history.executions.list(filter)).items} == found
    assert await history.executions.count(filter) == len(found)


async def test_children_and_counts(history: History) -> None:
    await history.executions.create(new("a"))
    for id in ("b", "c"):
        await history.executions.create(new(id, parent="a", trigger="redrive"))
    assert [child.id for child in await history.executions.children("a")] == ["b", "c"]
    await history.recording.record([status("x", execution_id="b")])
    assert await history.executions.counts() == {"pending": 2, "running": 1}


async def test_a_status_changes_only_from_those_it_may_follow(history: History) -> None:
    await history.executions.create(new())
    assert not await history.executions.set_status(EXECUTION, "paused", ["running"])
    await history.recording.record([status("a")])
    assert await history.executions.set_status(EXECUTION, "paused", ["running"], {"by": "ada"})
    assert not await history.executions.set_status(EXECUTION, "paused", ["running"])
    assert not await history.executions.set_status("nobody", "paused", ["running"])
    # What is recorded meanwhile leaves it as it is.
    await history.recording.record([status("b")])
    execution = await history.executions.get(EXECUTION)
    assert execution is not None
    assert (execution.status, execution.seq) == ("paused", 3)
    events = (await history.events.list(EXECUTION)).items
    assert [(event.seq, event.kind, event.node) for event in events] == [
        (1, "running", "a"),
        (2, "paused", ""),
        (3, "running", "b"),
    ]
    assert events[1].details == {"by": "ada"}


async def test_those_that_are_alive_some_at_a_time(history: History) -> None:
    for id in ("a", "b", "c", "d"):
        await history.executions.create(new(id))
    await history.recording.record([status("x", execution_id="b")], [completion(execution_id="c")])
    first = await history.executions.alive(limit=2)
    assert [row[:2] for row in first] == [("a", "pending"), ("b", "running")]
    assert [row[0] for row in await history.executions.alive(limit=2, after_id="b")] == ["d"]
    assert [row[0] for row in await history.executions.alive(status=["running"])] == ["b"]
    assert list(await history.executions.alive(before=0.0)) == []


async def test_an_execution_that_has_ended_can_be_deleted(history: History) -> None:
    await history.executions.create(new())
    assert not await history.executions.delete(EXECUTION)
    large = status("a", "success", output="x" * 5000)
    await history.recording.record([large], [completion()])
    assert await history.executions.delete(EXECUTION)
    assert await history.executions.get(EXECUTION) is None
    for table in ("step", "node", "event", "value"):
        assert await history.database.fetch(f"SELECT * FROM history_{table}") == []
    assert not await history.executions.delete(EXECUTION)
