"""The scheduler: publishes due timers, forgets them only then, and sleeps in between."""

from __future__ import annotations

import asyncio

import pytest

from rune.backends.memory import MemoryState
from rune.core.errors import InfrastructureError
from rune.core.messages import Task, encode
from rune.core.operations import Arm, Commit, Timer
from rune.scheduler import Scheduler
from tests.core.graphs import NOW
from tests.engine.bench import EXECUTION, Clock, Outbox, Spy


class Desk:
    def __init__(self) -> None:
        self.clock = Clock()
        self.state = Spy(MemoryState(self.clock))
        self.broker = Outbox()
        self.scheduler = Scheduler(self.state, self.broker, self.clock)

    async def arm(self, id: str, due: float | None, pool: str = "") -> None:
        task = Task(
            workflow_id="w", execution_id=EXECUTION, current_node=id, accumulated_context={}, pool=pool
        )
        await self.state.apply(EXECUTION, [Commit(id, (), [Arm(Timer(id, due, encode(task)))])])

    def published(self) -> list[str]:
        found, self.broker.tasks = [task.current_node for task in self.broker.tasks], []
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_what_is_due_is_published_once_in_order(desk: Desk) -> None:
    for id, due in (("late", NOW + 3), ("soon", NOW + 1), ("never", None), ("now", NOW)):
        await desk.arm(id, due)
    assert (await desk.scheduler.tick(), desk.published()) == (1, ["now"])
    desk.clock.now += 3
    assert (await desk.scheduler.tick(), desk.published()) == (2, ["soon", "late"])
    assert (await desk.scheduler.tick(), await desk.state.next_due()) == (0, None)


async def test_a_timer_is_forgotten_only_after_it_was_published(desk: Desk) -> None:
    await desk.arm("a", NOW)

    async def refuse(tasks: object, completions: object = ()) -> None:
        raise ConnectionError("the broker is gone")

    publish, desk.broker.publish = desk.broker.publish, refuse  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await desk.scheduler.tick()
    desk.broker.publish = publish  # type: ignore[method-assign]
    assert (await desk.scheduler.tick(), desk.published()) == (0, [])
    due = await desk.state.next_due()
    assert due is not None
    assert due > NOW
    desk.clock.now = due
    assert (await desk.scheduler.tick(), desk.published()) == (1, ["a"])


async def test_a_timer_that_makes_no_sense_does_not_keep_the_others_waiting(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.state.apply(EXECUTION, [Commit("bad", (), [Arm(Timer("bad", NOW - 1, b"{}"))])])
    await desk.arm("good", NOW)
    assert (await desk.scheduler.tick(), desk.published()) == (2, ["good"])
    assert f"the timer bad of {EXECUTION} makes no sense" in caplog.text
    assert await desk.scheduler.tick() == 0
    assert await desk.state.next_due() == NOW + 30, "it is not forgotten"


async def test_a_pool_out_of_reach_does_not_keep_the_others_waiting(desk: Desk) -> None:
    for id, pool in (("a", ""), ("lost", "gpu"), ("b", ""), ("c", "tpu")):
        await desk.arm(id, NOW, pool)
    publish = desk.broker.publish

    async def refuse(tasks: list[Task], completions: object = ()) -> None:
        if tasks[0].pool == "gpu":
            raise InfrastructureError("no queue takes it")
        await publish(tasks)

    desk.broker.publish = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(InfrastructureError):
        await desk.scheduler.tick()
    assert desk.published() == ["a", "b", "c"]
    desk.broker.publish = publish  # type: ignore[method-assign]
    desk.clock.now += 30
    assert (await desk.scheduler.tick(), desk.published()) == (1, ["lost"])


async def test_it_counts_timers_and_how_late_they_are(desk: Desk) -> None:
    await desk.arm("a", NOW)
    await desk.arm("b", NOW + 2)
    desk.clock.now += 3
    await desk.scheduler.tick()
    scheduler = desk.scheduler
    assert (scheduler.claimed, scheduler.published) == (2, 2)
    assert (scheduler.lateness.count, scheduler.lateness.total) == (2, 4)


async def test_two_schedulers_publish_a_timer_once(desk: Desk) -> None:
    await desk.arm("a", NOW)
    other = Scheduler(desk.state, desk.broker, desk.clock)
    assert sorted(await asyncio.gather(desk.scheduler.tick(), other.tick())) == [0, 1]
    assert desk.published() == ["a"]


async def test_many_due_timers_are_published_in_batches(desk: Desk) -> None:
    for i in range(1001):
        await desk.arm(f"t{i}", NOW)
    assert [await desk.scheduler.tick() for _ in range(3)] == [1000, 1, 0]


async def test_it_sleeps_until_the_next_timer_and_wakes_for_an_earlier_one(desk: Desk) -> None:
    waits: list[float] = []
    asleep = asyncio.Event()
    armed = desk.state._of.armed

    async def noting(timeout: float) -> None:
        waits.append(timeout)
        asleep.set()
        await armed(None)

    desk.state._of.armed = noting
    running = asyncio.create_task(desk.scheduler.run())
    await asleep.wait()
    for id, due in (("late", NOW + 1000), ("later", NOW + 40), ("soon", NOW + 5)):
        asleep.clear()
        await desk.arm(id, due)
        await asleep.wait()
    asleep.clear()
    desk.clock.now += 5
    await desk.arm("now", NOW)
    await asleep.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    # A minute at most, because the clock may be set.
    assert waits == [60.0, 60.0, 40.0, 5.0, 35.0]
    assert desk.published() == ["now", "soon"]


# --- beside others, on servers ---


async def test_an_enduring_one_tries_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rune.scheduler._REST", 0.0)
    await desk.arm("a", NOW)
    publish, tries = desk.broker.publish, 0

    async def refuse_once(tasks: list[Task], completions: object = ()) -> None:
        nonlocal tries
        tries += 1
        desk.clock.now += 60
        if tries == 1:
            raise InfrastructureError("rabbitmq is gone")
        await publish(tasks)

    desk.broker.publish = refuse_once  # type: ignore[assignment, method-assign]
    running = asyncio.create_task(desk.scheduler.run(enduring=True))
    async with asyncio.timeout(5):
        while not desk.broker.tasks:
            await asyncio.sleep(0)
    desk.scheduler.stop()
    await asyncio.wait_for(running, 2)
    assert (tries, desk.published()) == (2, ["a"])


async def test_told_to_stop_it_wakes_up_and_ends(desk: Desk) -> None:
    running = asyncio.create_task(desk.scheduler.run())
    while "armed" not in desk.state.calls:
        await asyncio.sleep(0)
    desk.scheduler.stop()
    await asyncio.wait_for(running, 2)
