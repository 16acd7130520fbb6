"""What is said to all workers at once: that an execution is paused, that it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune import distributed
from rune.cli.types import node_types
from rune.core.messages import Task
from rune.settings import Settings
from tests.distributed.client import flow, node
from tests.distributed.fleet import Fleet


async def until(come: Callable[[], Any], what: str) -> None:
    """Wait until this has come."""
    for _ in range(500):
        if come():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


async def test_a_pause_is_heard_at_once(crew: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_NEWS", 3600.0)
    settings = Settings(broker_url=crew.broker_url, state_url=crew.state_url)
    types = node_types(Settings(modules=("tests.distributed.nodes",))).complete()
    stop = asyncio.get_running_loop().create_future()
    worker = asyncio.create_task(distributed.run_worker(settings, types, stop))
    nodes = [node(id, "nap", journal=str(tmp_path / id), seconds=0.3) for id in ("a", "b", "c")]
    definition = Raw(msgspec.json.encode(flow(nodes, "a > b > c")))
    task = Task(
        workflow_id="wf",
        execution_id="exec",
        current_node="a",
        accumulated_context={},
        workflow_definition=definition,
    )
    vhost = crew.broker_url.rpartition("/")[2]
    listening = f'lists:concat([io_lib:format("~p", [Q]) || Q <- rabbit_amqqueue:list(<<"{vhost}">>)])'
    await until(lambda: "workflow.control." in crew.rabbit.eval(listening), "a worker that listens")
    async with distributed.connect(settings) as (broker, state):
        await broker.publish([task])
        await until((tmp_path / "a").exists, "the first nap")
        assert await distributed.pause(broker, state, "exec")
        parked = "exec:{exec}:parked"
        await until(lambda: crew.redis.call_in(crew.db, "HLEN", parked) == 1, "what is parked")
        assert not (tmp_path / "b").exists()
        await distributed.resume(broker, state, "exec")
        await until((tmp_path / "b").exists, "the second nap")
        async with aclosing(broker.completions()) as completions:  # type: ignore[type-var]
            completion = await anext(completions)
            assert completion.status == "completed"
            await broker.completed(completion)
        assert not await distributed.pause(broker, state, "exec"), "it has ended"
    stop.set_result(None)
    await worker
    crew.is_buried("exec")
