"""How a definition travels: whole with every Task when small, by its hash when large."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from rune.backends.memory import MemoryBroker, MemoryState
from rune.core.errors import EngineError
from rune.core.messages import NULL, Task, decode_task
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.adopting import WHOLE
from rune.engine.running import Runner
from rune.formats.graph import compile_workflow
from rune.nodes import load_builtin
from rune.settings import Settings

REGISTRY = Registry(load_builtin())


def definition(size: int) -> bytes:
    """Two nodes in a chain, in about so many bytes."""
    nodes: list[dict[str, Any]] = [
        {"id": "a", "type": "log", "parameters": {"message": "x" * size}},
        {"id": "b", "type": "log", "parameters": {"message": "end"}},
    ]
    return msgspec.json.encode(
        {"workflow_id": "wf", "nodes": nodes, "edges": [{"id": "e", "src": "a", "dst": "b"}]}
    )


def compiled(data: bytes) -> Workflow:
    return compile_workflow(msgspec.json.decode(data), REGISTRY, definition=data)


class Desk:
    def __init__(self, broker: MemoryBroker | None = None, state: MemoryState | None = None) -> None:
        self.broker, self.state = broker or MemoryBroker(), state or MemoryState()
        settings = Settings()
        runner = Runner(settings, time.time, {}, Credentials())
        self.engine = Engine(self.state, self.broker, compiled, runner, settings, time.time)

    def beside(self) -> Desk:
        """Another worker on the same servers."""
        return Desk(self.broker, self.state)

    async def next(self) -> Task:
        """Handle the next Task; what it was."""
        delivery = await anext(self.broker.deliveries(10))
        await self.engine.handle(delivery)
        return delivery.task


@pytest.mark.parametrize(("size", "whole"), [(10, True), (WHOLE, False)])
async def test_a_started_one(size: int, whole: bool) -> None:
    desk, data = Desk(), definition(size)
    await desk.engine.start(compiled(data), "exec", {}, whole=WHOLE)
    for task in (await desk.next(), await desk.next()):
        assert (bytes(task.workflow_definition) == data, task.definition == "") == (whole, whole)
    assert "exec" in desk.engine.ended


async def test_unless_asked_for_it_goes_by_its_hash() -> None:
    desk = Desk()
    await desk.engine.start(compiled(definition(10)), "exec", {})
    task = await desk.next()
    assert task.definition
    assert task.workflow_definition == NULL


@pytest.mark.parametrize(("size", "whole"), [(10, True), (WHOLE, False)])
async def test_one_written_by_hand(size: int, whole: bool) -> None:
    """Large, it is stored when it is first met, and travels no further."""
    desk, data = Desk(), definition(size)
    message = b'{"workflow_id":"wf","execution_id":"exec","current_node":"a","accumulated_context":{}'
    await desk.broker.publish([decode_task(message + b',"workflow_definition":' + data + b"}")])
    await desk.next()
    task = await desk.next()
    assert (bytes(task.workflow_definition) == data, task.definition == "") == (whole, whole)
    assert "exec" in desk.engine.ended


async def test_a_late_duplicate_reaches_a_worker_that_never_saw_the_definition() -> None:
    desk = Desk()
    await desk.engine.start(compiled(definition(WHOLE)), "exec", {}, whole=WHOLE)
    late = await desk.next()
    await desk.next()
    assert await desk.state.standings(["exec"]) == {"exec": "ended"}
    other = desk.beside()
    await other.broker.publish([late])
    # Its definition went with the execution, and so does it.
    assert await other.next() == late
    assert await other.broker.depth() == 0


async def test_a_definition_that_is_gone_while_its_execution_is_alive_is_trouble() -> None:
    desk = Desk()
    await desk.engine.start(compiled(definition(WHOLE)), "exec", {}, whole=WHOLE)
    await desk.next()
    desk.state.rows.at("exec").values.clear()
    with pytest.raises(EngineError, match="is gone"):
        await desk.beside().next()
