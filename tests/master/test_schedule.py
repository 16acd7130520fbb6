"""Schedules: each due time starts one execution, whoever is there, whatever dies, wherever the clock goes."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune.core.errors import InfrastructureError
from rune.history.executions import Execution
from rune.history.triggers import Trigger, firing_id
from rune.master.triggers.firing import Clock
from rune.master.triggers.starting import TriggerStarter
from tests.master.client import Api, flow_of

FLOW = flow_of({"id": "greet"}, id="tick")
HOUR = 3600.0


async def made(api: Api, **config: Any) -> Any:
    """A schedule of a workflow that is published."""
    await api.post("/api/workflows", {"definition": FLOW, "publish": True})
    body = {"workflow_id": "tick", "kind": "schedule", "config": config}
    answer = await api.post("/api/triggers", body)
    assert answer.status == 201, answer
    return answer.json


async def started(api: Api) -> list[Any]:
    """The executions there are, the oldest first."""
    found = (await api.get("/api/executions")).json["items"]
    whole = [(await api.get(f"/api/executions/{each['id']}")).json for each in reversed(found)]
    return sorted(whole, key=lambda execution: execution["input"]["due"])


def clock_at(api: Api, now: float, starter: Any = None) -> Clock:
    """Another master's clock, which shows this time."""
    triggering = api.master.triggering
    return Clock(triggering.store, starter or triggering.starter, lambda: now)


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


async def test_an_interval_fires_by_itself_and_does_not_drift(api: Api) -> None:
    schedule = await made(api, amount=1, input={"n": 7})
    made_at = seconds(schedule["created_at"])
    path = f"/api/triggers/{schedule['id']}/firings"
    while True:
        firings = (await api.get(path)).json["items"]
        if len([firing for firing in firings if firing["settled_at"]]) >= 2:
            break
        await asyncio.sleep(0.05)
    assert [firing["error"] for firing in firings] == [None] * len(firings)
    for number, execution in enumerate(await started(api), 1):
        assert (execution["trigger"], execution["workflow_version"]) == ("schedule", 1)
        assert execution["input"]["input"] == {"n": 7}
        assert execution["input"]["trigger_id"] == schedule["id"]
        # Due by the schedule, whenever it was that somebody came to it.
        assert seconds(execution["input"]["due"]) == pytest.approx(made_at + number, abs=0.002)


async def test_of_many_masters_each_due_time_is_fired_by_one(api: Api) -> None:
    schedule = await made(api, cron="0 * * * *", missed="run_all")
    first = seconds(schedule["next"][0])
    now = first + 3 * HOUR + 1
    clocks = [clock_at(api, now) for _ in range(5)]
    await asyncio.gather(*(clock.fire() for clock in clocks))
    executions = await started(api)
    assert [seconds(each["input"]["due"]) for each in executions] == [first + n * HOUR for n in range(4)]
    assert [each["id"] for each in executions] == [
        firing_id(schedule["id"], first + n * HOUR) for n in range(4)
    ]
    trigger = await api.master.triggering.store.get(schedule["id"])
    assert trigger is not None
    assert trigger.next_due == first + 4 * HOUR


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("run_once", 1), ("run_all", 3)])
async def test_missed_times_go_by_the_policy(small: Api, missed: str, count: int) -> None:
    schedule = await made(small, cron="0 * * * *", missed=missed)
    first = seconds(schedule["next"][0])
    await clock_at(small, first + 2.5 * HOUR).fire()
    due = [seconds(each["input"]["due"]) for each in await started(small)]
    assert due == [first + n * HOUR for n in range(3)][3 - count :]
    # The next one is met.
    await clock_at(small, first + 3 * HOUR + 0.1).fire()
    assert len(await started(small)) == count + 1


class Dying(TriggerStarter):
    """Dies before it has started something, or right after."""

    def __init__(self, real: TriggerStarter, after: bool) -> None:
        self._real = real
        self._after = after

    async def start(self, trigger: Trigger, execution: str, input: Raw, *, test: bool = False) -> Execution:
        if self._after:
            await self._real.start(trigger, execution, input, test=test)
        raise asyncio.CancelledError


@pytest.mark.parametrize("after", [False, True])
async def test_a_master_that_dies_in_between_neither_loses_nor_doubles(api: Api, after: bool) -> None:
    schedule = await made(api, cron="0 * * * *")
    due = seconds(schedule["next"][0])
    dying = Dying(api.master.triggering.starter, after)
    with pytest.raises(asyncio.CancelledError):
        await clock_at(api, due + 1, dying).fire()
    await clock_at(api, due + 2).fire()
    assert len(await started(api)) == int(after)  # the dead one's claim has not run out
    await asyncio.gather(*(clock_at(api, due + 40).fire() for _ in range(3)))
    await clock_at(api, due + 90).fire()
    (execution,) = await started(api)
    assert execution["id"] == firing_id(schedule["id"], due)
    (firing,) = (await api.get(f"/api/triggers/{schedule['id']}/firings")).json["items"]
    assert (firing["execution_id"], firing["error"]) == (execution["id"], None)
    assert firing["settled_at"] is not None


class Unreachable(TriggerStarter):
    """Starts nothing, for the engine is out of reach."""

    def __init__(self) -> None:
        pass

    async def start(self, trigger: Trigger, execution: str, input: Raw, *, test: bool = False) -> Execution:
        raise InfrastructureError("RabbitMQ is out of reach")


async def test_what_cannot_be_started_now_is_started_later(small: Api) -> None:
    schedule = await made(small, cron="0 * * * *")
    due = seconds(schedule["next"][0])
    await clock_at(small, due + 1, Unreachable()).fire()
    assert await started(small) == []
    await clock_at(small, due + 40).fire()
    assert len(await started(small)) == 1


async def test_a_clock_that_is_set_back_or_forward_fires_nothing_twice(small: Api) -> None:
    schedule = await made(small, cron="0 * * * *", missed="run_all")
    first = seconds(schedule["next"][0])
    for hours in (0.1, 1.1, -3.0, 0.2, 1.2, 2.1, -24.0, 2.2):
        await clock_at(small, first + hours * HOUR).fire()
    due = [seconds(each["input"]["due"]) for each in await started(small)]
    assert due == [first, first + HOUR, first + 2 * HOUR]
    # Also if the schedule is saved again while the clock is behind.
    store = small.master.triggering.store
    trigger = await store.get(schedule["id"])
    assert trigger is not None
    again = msgspec.structs.replace(trigger, version=trigger.version + 1, next_due=first)
    assert await store.replace(again)
    await clock_at(small, first + 0.1).fire()
    assert len(await started(small)) == 3


async def test_a_workflow_that_is_not_published_is_not_started_and_that_is_said(small: Api) -> None:
    schedule = await made(small, cron="0 * * * *")
    await small.post("/api/workflows/tick/publish", {"version": None})
    due = seconds(schedule["next"][0])
    await clock_at(small, due + 1).fire()
    (firing,) = (await small.get(f"/api/triggers/{schedule['id']}/firings")).json["items"]
    assert "published" in firing["error"]
    await small.delete("/api/workflows/tick")
    await clock_at(small, due + HOUR + 1).fire()
    latest, _ = (await small.get(f"/api/triggers/{schedule['id']}/firings")).json["items"]
    assert "no workflow" in latest["error"]
    assert await started(small) == []


async def test_a_schedule_that_is_switched_off_does_not_fire(small: Api) -> None:
    schedule = await made(small, cron="0 * * * *")
    await small.post(f"/api/triggers/{schedule['id']}/disable")
    await clock_at(small, seconds(schedule["next"][0]) + 1).fire()
    assert await started(small) == []


async def test_a_new_schedule_wakes_a_clock_that_sleeps(small: Api) -> None:
    # Without being woken it would look again after some seconds.
    await asyncio.sleep(0.1)
    began = time.time()
    await made(small, amount=1)
    while not await started(small):
        await asyncio.sleep(0.02)
    assert time.time() - began < 4
