"""What the engine tells is in the history, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import Raw

from rune.core.context import Ref
from rune.core.ids import content_hash, new_execution_id
from rune.core.messages import CompletionMessage, Sets
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.playbook.references import result_ref
from rune.core.references import reference
from rune.core.registry import Registry
from rune.embedded import Embedded
from rune.formats.graph import compile_workflow
from rune.history import History, open_history
from rune.history.executions import Execution, NewExecution
from rune.master.local import Local
from rune.master.recorder import Recorder
from rune.nodes import load_builtin
from rune.settings import Settings
from tests.history.statuses import item, status
from tests.servers.postgres import postgres_server, shared_postgres

LARGE = "x" * 200_000


class Setting(NodeType, kw_only=True):
    """Sets a large variable of the execution."""

    name: ClassVar = "sets"

    async def run(self, context: StepContext) -> Outcome:
        return Done(sets={"x": LARGE})


REGISTRY = Registry([*load_builtin(), Setting])

BIG = {"mode": "keep_only", "assignments": [{"name": "text", "value": "{{ $trigger.text }}"}]}
FLOW: dict[str, Any] = {
    "workflow_id": "wf",
    "nodes": [
        {"id": "each", "type": "split", "parameters": {"source": {"range": 5}}},
        {"id": "log", "type": "log", "parameters": {"message": "{{ $item }}"}},
        {"id": "all", "type": "aggregator"},
        {"id": "big", "type": "edit", "parameters": BIG},
    ],
    "edges": [
        {"id": "1", "src": "each", "dst": "log"},
        {"id": "2", "src": "log", "dst": "all"},
        {"id": "3", "src": "all", "dst": "big"},
    ],
}
SUCCESSES = {"each": 1, "log": 5, "all": 1, "big": 1}


class Rig:
    """An engine, a history, and a recorder between them."""

    def __init__(self, embedded: Embedded, history: History) -> None:
        self.embedded = embedded
        self.history = history
        self.runtime = Local(embedded)
        self.recorder = Recorder(history, self.runtime)
        self.recorder.on_ended = self._told
        self.recorder.on_recorded = self._news
        self.ended: dict[str, asyncio.Event] = {}
        self.changed: set[str] = set()

    def _told(self, completions: Iterable[CompletionMessage]) -> None:
        for completion in completions:
            self.ended.setdefault(completion.execution_id, asyncio.Event()).set()

    def _news(self, executions: Iterable[str]) -> None:
        self.changed |= {*executions}

    async def start(self, definition: dict[str, Any] = FLOW, text: str = "") -> str:
        """Start an execution as a master does."""
        flow = compile_workflow(definition, REGISTRY)
        id = new_execution_id()
        new = NewExecution(id=id, definition=flow.definition.decode(), name="mine")
        await self.history.executions.create(new)
        await self.runtime.start(flow, id, {"$trigger": Raw(msgspec.json.encode({"text": text}))})
        return id

    async def end_of(self, id: str) -> Execution:
        """An execution once its end is stored."""
        await self.ended.setdefault(id, asyncio.Event()).wait()
        execution = await self.history.executions.get(id)
        assert execution is not None
        return execution

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Let the recorder run meanwhile."""
        task = asyncio.create_task(self.recorder.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(params=["sqlite", "postgres"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """All in one file, or the engine in memory and the history in PostgreSQL."""
    if request.param == "sqlite":
        path = str(tmp_path / "rune.db")
        async with Embedded.open(Settings(), REGISTRY, path) as embedded:
            assert embedded.database is not None
            async with open_history(embedded.database) as history:
                yield Rig(embedded, history)
        return
    server = shared_postgres()
    url = server.new_database()
    async with Embedded.open(Settings(), REGISTRY) as embedded, open_history(url) as history:
        yield Rig(embedded, history)
    server.drop_database(url)


async def test_an_execution_is_recorded_from_its_start_to_its_end(rig: Rig) -> None:
    async with rig.recording():
        id = await rig.start(text=LARGE)
        execution = await rig.end_of(id)
    assert (execution.status, execution.name, execution.trigger) == ("completed", "mine", "api")
    assert execution.started_at is not None
    assert execution.ended_at is not None
    nodes = await rig.history.executions.nodes(id)
    assert {node: counts.success for node, counts in nodes.items()} == SUCCESSES
    assert not any(counts.running or counts.waiting or counts.stopped for counts in nodes.values())
    (split,) = await rig.history.items.splits(id)
    assert (split.total, split.succeeded, split.failed, split.pending) == (5, 5, 0, 0)
    assert rig.changed == {id}


async def test_large_outputs_and_results_are_stored(rig: Rig) -> None:
    async with rig.recording():
        id = await rig.start(text=LARGE)
        execution = await rig.end_of(id)
    (step,) = (await rig.history.steps.list(id, node="big")).items
    assert step.output_hash is not None
    output = await rig.history.values.get(id, step.output_hash)
    assert output is not None
    assert LARGE.encode() in output
    assert LARGE.encode() in bytes((await rig.history.values.result(execution))["$big"])


async def test_large_variables_that_steps_set_are_in_the_history(rig: Rig) -> None:
    nodes = [{"id": "sets", "type": "sets"}, {"id": "wait", "type": "wait", "parameters": {"amount": 0.2}}]
    definition = {"workflow_id": "wf", "nodes": nodes, "edges": [{"id": "1", "src": "sets", "dst": "wait"}]}
    async with rig.recording():
        id = await rig.start(definition)
        await rig.end_of(id)
    (step,) = (await rig.history.steps.list(id, node="sets")).items
    assert (step.turn, step.sets, step.sets_size) == (1, None, len(LARGE) + 8)
    stored = await rig.history.values.get(id, step.sets_hash or "")
    assert msgspec.json.decode(stored or b"null") == {"x": LARGE}


async def test_what_is_large_is_stored_though_its_execution_has_ended_meanwhile(rig: Rig) -> None:
    nodes = [{"id": "sets", "type": "sets"}, {"id": "log", "type": "log", "parameters": {"message": "set"}}]
    edges = [{"id": "1", "src": "sets", "dst": "log"}]
    id = await rig.start({"workflow_id": "wf", "nodes": nodes, "edges": edges})
    while await rig.runtime.standings([id]) != {id: "ended"}:
        await asyncio.sleep(0.01)
    async with rig.recording():
        await rig.end_of(id)
    (step,) = (await rig.history.steps.list(id, node="sets")).items
    stored = await rig.history.values.get(id, step.sets_hash or "")
    assert msgspec.json.decode(stored or b"null") == {"x": LARGE}


async def test_large_values_are_fetched_some_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [msgspec.json.encode(f"{n:04}" + "x" * (3 << 20)) for n in range(9)]
    refs = [Ref(content_hash(data), len(data)) for data in values]
    await rig.embedded.state.put("exec_1", {ref.hash: data for ref, data in zip(refs, values, strict=True)})
    fetched: list[int] = []
    fetch = rig.runtime.values

    async def fetching(execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        found = await fetch(execution, hashes)
        fetched.append(sum(map(len, found.values())))
        return found

    monkeypatch.setattr(rig.runtime, "values", fetching)
    named = [result_ref(reference(ref.hash), values[n], "") for n, ref in enumerate(refs)]
    rig.embedded.broker.emit(
        [
            *(status(f"out:{n}", "success", output_ref=refs[n]) for n in range(3)),
            *(status(f"ref:{n}", "success", output={"big": named[n]}) for n in range(3, 6)),
            *(status(f"set:{n}", "success", output=1, sets=Sets(n, ref=refs[n])) for n in range(6, 9)),
        ]
    )
    async with rig.recording():
        while await rig.history.values.missing("exec_1", [ref.hash for ref in refs]):
            await asyncio.sleep(0.02)
    assert sum(fetched) == sum(map(len, values))
    assert max(fetched) <= 16 << 20


async def test_what_is_stored_is_acknowledged(rig: Rig) -> None:
    async with rig.recording():
        await rig.end_of(await rig.start())
        while await rig.embedded.unfinished():
            await asyncio.sleep(0)
    assert rig.recorder.behind == 0


async def test_what_came_before_the_recorder_was_told_to_stop_is_stored(rig: Rig) -> None:
    async with rig.recording():
        await asyncio.sleep(0)
        rig.embedded.broker.emit([status("a"), status("a", "success", 1001.0)])
        await asyncio.sleep(0.01)
    assert (await rig.history.executions.nodes("exec_1"))["a"].success == 1


async def test_the_larger_the_backlog_the_larger_the_batch(rig: Rig) -> None:
    for i in range(500):
        rig.embedded.broker.emit([status(f"a:{i}")])
    recorded = asyncio.Event()
    rig.recorder.on_recorded = lambda executions: recorded.set()
    async with rig.recording():
        await recorded.wait()
    rows = await rig.history.database.fetch("SELECT first_seq, last_seq FROM history_event")
    assert [(row["first_seq"], row["last_seq"]) for row in rows] == [(1, 500)]


async def test_a_message_that_makes_no_sense_is_left_out(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    nonsense = status("x", lineage_stack=item(1 << 70))
    rig.embedded.broker.emit([*(status(f"a:{i}") for i in range(7)), nonsense, status("b")])
    async with rig.recording():
        while (await rig.history.executions.nodes("exec_1")).keys() != {"a", "b"}:
            await asyncio.sleep(0.01)
    assert (await rig.history.executions.nodes("exec_1"))["a"].running == 7
    assert caplog.text.count("left out of the history") == 1


async def test_nothing_is_lost_while_the_database_is_away() -> None:
    with postgres_server() as server:
        async with Embedded.open(Settings(), REGISTRY) as embedded, open_history(server.url()) as history:
            rig = Rig(embedded, history)
            async with rig.recording():
                first = await rig.end_of(await rig.start())
                flow = compile_workflow(FLOW, REGISTRY)
                server.stop()
                id = await embedded.start(flow, input={"text": LARGE})
                await embedded.result(id)
                assert id in await embedded.unfinished()
                server.start()
                second = await rig.end_of(id)
            assert (first.status, second.status, second.trigger) == ("completed", "completed", "wire")
            counts = await history.executions.nodes(id)
            assert {node: row.success for node, row in counts.items()} == SUCCESSES


DIVIDE = {"assignments": [{"name": "n", "value": "{{ 6 % $item }}"}]}
NESTED: dict[str, Any] = {
    "workflow_id": "nested",
    "nodes": [
        {"id": "outer", "type": "split", "parameters": {"input_array": [0, 1, 2, 3], "label": "$index"}},
        {"id": "which", "type": "conditional", "parameters": {"expression": "$item < 3"}},
        {"id": "inner", "type": "split", "parameters": {"source": {"range": 3}}},
        {"id": "divide", "type": "edit", "parameters": DIVIDE},
        {"id": "sum", "type": "aggregator"},
        {"id": "left", "type": "log", "parameters": {"message": "l"}},
        {"id": "right", "type": "log", "parameters": {"message": "r"}},
        {"id": "both", "type": "merge"},
        {"id": "all", "type": "aggregator"},
    ],
    "edges": [
        {"id": "1", "src": "outer", "dst": "which"},
        {"id": "2", "src": "which", "dst": "inner", "port": "true"},
        {"id": "3", "src": "inner", "dst": "divide"},
        {"id": "4", "src": "divide", "dst": "sum"},
        {"id": "5", "src": "sum", "dst": "left"},
        {"id": "6", "src": "sum", "dst": "right"},
        {"id": "7", "src": "left", "dst": "both"},
        {"id": "8", "src": "right", "dst": "both"},
        {"id": "9", "src": "both", "dst": "all"},
    ],
}


async def test_items_that_fail_or_go_nowhere_in_splits_within_splits(rig: Rig) -> None:
    async with rig.recording():
        id = await rig.start(NESTED)
        execution = await rig.end_of(id)
    assert (execution.status, execution.error) == ("completed", None)
    (outer,) = [split for split in await rig.history.items.splits(id) if split.scope is None]
    assert (outer.total, outer.succeeded, outer.failed, outer.skipped) == (4, 3, 0, 1)
    result = msgspec.json.decode((await rig.history.values.result(execution))["$all"])
    assert (result["succeeded"], result["failed"], result["skipped"]) == (3, 0, 1)
    inner = [split for split in await rig.history.items.splits(id) if split.node == "inner"]
    assert [(split.scope_item, split.succeeded, split.failed) for split in inner] == [
        (0, 2, 1),
        (1, 2, 1),
        (2, 2, 1),
    ]
    (failures,) = await rig.history.items.failures(id, inner[0].barrier)
    assert (failures.node, failures.count, failures.example) == ("divide", 1, 0)
    nodes = await rig.history.executions.nodes(id)
    counts = {node: (row.success, row.failed, row.stopped) for node, row in nodes.items()}
    assert counts == {
        "outer": (1, 0, 0),
        "which": (4, 0, 0),
        "inner": (3, 0, 0),
        "divide": (6, 3, 0),
        "sum": (3, 0, 0),
        "left": (3, 0, 0),
        "right": (3, 0, 0),
        "both": (3, 0, 0),
        "all": (1, 0, 0),
    }
    items = (await rig.history.items.list(id, outer.barrier)).items
    assert [(item.label, item.state) for item in items] == [
        *((str(i), "succeeded") for i in range(3)),
        ("3", "skipped"),
    ]


async def test_an_item_goes_on_after_a_failure_that_is_ignored(rig: Rig) -> None:
    ignoring = {
        "workflow_id": "ignoring",
        "nodes": [
            {"id": "each", "type": "split", "parameters": {"source": {"range": 3}}},
            {"id": "divide", "type": "edit", "parameters": DIVIDE, "error": {"type": "ignore"}},
            {"id": "all", "type": "aggregator"},
        ],
        "edges": [{"id": "1", "src": "each", "dst": "divide"}, {"id": "2", "src": "divide", "dst": "all"}],
    }
    async with rig.recording():
        id = await rig.start(ignoring)
        await rig.end_of(id)
    (split,) = await rig.history.items.splits(id)
    assert (split.succeeded, split.failed) == (3, 0)
    assert (await rig.history.executions.nodes(id))["divide"].failed == 1
