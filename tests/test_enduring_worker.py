"""A worker beside others, on servers that may be out of reach for a while."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.errors import InfrastructureError
from rune.core.ports import Delivery
from tests.desk import Desk


async def test_an_enduring_one_holds_what_it_has_until_the_servers_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rune.worker._FIRST_REST", 0.01)
    desk = Desk(enduring=True)
    away = True

    async def body(delivery: Delivery) -> None:
        if away:
            raise InfrastructureError("redis is gone")
        await desk.broker.finish(delivery)

    desk.engine.bodies["a"] = desk.engine.bodies["b"] = body
    async with desk.running() as running:
        await desk.publish("a", "b")
        for _ in range(8):
            await desk.engine.entered.get()
        assert desk.broker.dead == []
        away = False
        await desk.settled()
        assert not running.done()
    assert desk.engine.failed == []


async def test_while_one_is_held_no_other_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.worker._FIRST_REST", 60.0)
    monkeypatch.setattr("rune.worker._LONGEST_REST", 60.0)
    desk = Desk(enduring=True)
    desk.engine.bodies["bad"] = InfrastructureError("redis is gone")
    async with desk.running():
        await desk.publish("bad")
        await desk.entered("bad")
        await desk.publish("other")
        for _ in range(20):
            await asyncio.sleep(0)
        assert desk.engine.entered.empty()
    assert desk.queued() == ["bad", "other"], "and both are given back"


async def test_one_that_alone_finds_the_servers_gone_is_retried_and_dead_lettered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rune.worker._FIRST_REST", 0.001)
    desk = Desk(enduring=True, retry_delays=())
    desk.engine.bodies["bad"] = InfrastructureError("no queue takes it")
    async with desk.running():
        await desk.publish("bad")
        async with asyncio.timeout(5):
            while not desk.broker.dead:
                await desk.publish("good")
                await asyncio.sleep(0.005)
    assert "no queue takes it" in desk.broker.dead[0].reason


async def test_nothing_is_taken_while_state_is_not_ready() -> None:
    up = asyncio.Event()

    async def ready() -> None:
        await up.wait()

    desk = Desk(ready=ready)
    async with desk.running():
        await desk.publish("a")
        for _ in range(20):
            await asyncio.sleep(0)
        assert desk.queued() == ["a"]
        up.set()
        await desk.settled()
    assert desk.engine.handled == ["a"]


async def test_told_to_stop_it_lets_running_tasks_end_and_takes_no_more() -> None:
    desk = Desk(concurrency=1)
    async with desk.running() as running:
        await desk.publish("slow1", "slow2")
        await desk.entered("slow1")
        desk.worker.stop()
        await desk.until(lambda: desk.worker._stopping.is_set())
        desk.engine.gate.set()
        await asyncio.wait_for(running, 2)
    assert desk.engine.handled == ["slow1"]
    assert desk.queued() == ["slow2"]


async def test_what_does_not_end_in_the_grace_period_is_given_back() -> None:
    desk = Desk(grace=0.05)
    async with desk.running() as running:
        await desk.publish("slow")
        await desk.entered("slow")
        desk.worker.stop()
        await asyncio.wait_for(running, 2)
    assert desk.queued() == ["slow"]
    assert desk.engine.failed == []


@pytest.mark.parametrize("calm", [True, False], ids=["before it begins", "while it waits for State"])
async def test_told_of_an_end_it_finishes_what_it_has_taken(calm: bool) -> None:
    desk = Desk(enduring=True)
    await desk.publish("a")
    delivery = await anext(desk.broker.deliveries(1))
    if not calm:
        desk.worker._calm.clear()
    desk.worker._begin(delivery)
    if not calm:
        await asyncio.sleep(0)
    desk.worker.ended("exec")
    await desk.settled()


async def test_it_hears_of_executions_that_ended_elsewhere() -> None:
    desk = Desk()
    told: list[str] = []
    desk.worker.on_end = told.append
    async with desk.running():
        await desk.publish("slow")
        await desk.entered("slow")
        await desk.state.put("exec", {})
        await desk.state.bury("exec", [], 0)
        await desk.worker.catch_up()
        await desk.settled()
        assert "exec" in desk.engine.ended
        assert told == [], "only what ended here is told"
        desk.engine.on_end("mine")
        assert told == ["mine"]
