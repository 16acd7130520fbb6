"""The worker: many deliveries at a time; none lost, whatever goes wrong with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rune.backends.memory import MemoryBroker, MemoryState
from rune.core.errors import DefinitionError, EngineError, InfrastructureError, MessageError, Problem
from rune.core.messages import Task
from rune.core.ports import Delivery
from rune.settings import Settings
from rune.worker import Worker


class FakeEngine:
    """Does with each delivery what the test says."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.ended: dict[str, None] = {}
        self.paused: frozenset[str] = frozenset()
        self.on_end: Callable[[str], None] = lambda execution: None
        self.failed: list[tuple[str, str]] = []
        self.handled: list[str] = []
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.bodies: dict[str, Any] = {}

    async def handle(self, delivery: Delivery) -> None:
        name = delivery.task.current_node
        self.entered.put_nowait(name)
        body = self.bodies.get(name)
        if isinstance(body, BaseException):
            raise body
        if body is not None:
            await body(delivery)
            return
        if name.startswith("slow"):
            await self.gate.wait()
        self.handled.append(name)
        await self.broker.finish(delivery)

    async def fail(self, task: Task, error: EngineError) -> bool:
        self.failed.append((task.current_node, error.message))
        return True


class Desk:
    def __init__(self, enduring: bool = False, ready: Any = None, **settings: Any) -> None:
        self.broker = MemoryBroker()
        self.state = MemoryState()
        self.engine = FakeEngine(self.broker)
        self.settings = Settings(**settings)
        self.worker = Worker(
            self.engine,  # type: ignore[arg-type]
            self.broker,
            self.state,
            self.settings,
            enduring=enduring,
            ready=ready,
        )

    async def publish(self, *names: str, execution: str = "exec") -> None:
        await self.broker.publish(
            [
                Task(workflow_id="w", execution_id=execution, current_node=name, accumulated_context={})
                for name in names
            ]
        )

    async def entered(self, *names: str) -> None:
        """Wait until the engine has these in hand."""
        seen = {await self.engine.entered.get() for _ in names}
        assert seen == set(names)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.worker.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until the broker holds nothing."""
        await self.until(lambda: not self.broker._queue and not self.broker._taken)

    async def until(self, come: Callable[[], bool]) -> None:
        """Let the worker work until this has come, but not for ever."""
        async with asyncio.timeout(2):
            while not come():
                await asyncio.sleep(0)

    def queued(self) -> list[str]:
        return sorted(entry[2].current_node for entry in self.broker._queue)


async def test_deliveries_are_handled_side_by_side_within_the_limit() -> None:
    desk = Desk(concurrency=2)
    async with desk.running():
        await desk.publish("slow1", "slow2", "slow3")
        await desk.entered("slow1", "slow2")
        assert desk.engine.entered.empty()
        desk.engine.gate.set()
        await desk.entered("slow3")
        await desk.settled()
    assert sorted(desk.engine.handled) == ["slow1", "slow2", "slow3"]


async def test_it_starts_with_the_news() -> None:
    desk = Desk()
    await desk.state.put("over", {})
    await desk.state.bury("over", [], 0)
    await desk.state.put("resting", {})
    await desk.state.pause("resting")
    async with desk.running():
        await desk.publish("a")
        await desk.entered("a")
        assert set(desk.engine.ended) == {"over"}
        assert desk.engine.paused == {"resting"}


async def test_what_is_said_while_the_news_are_read_is_younger() -> None:
    desk = Desk()
    await desk.state.put("a", {})
    await desk.state.put("b", {})
    await desk.state.pause("a")
    news = desk.state.news

    async def late() -> Any:
        answer = await news()
        desk.worker.paused("b")
        desk.worker.resumed("a")
        return answer

    await desk.worker.catch_up()
    assert desk.engine.paused == {"a"}
    desk.state.news = late  # type: ignore[method-assign]
    await desk.worker.catch_up()
    assert desk.engine.paused == {"b"}


async def test_it_counts_what_becomes_of_deliveries() -> None:
    desk = Desk(retry_delays=(0.0,))
    desk.engine.bodies["bug"] = ZeroDivisionError()
    desk.engine.bodies["nonsense"] = MessageError("no sense")
    async with desk.running():
        await desk.publish("a", "bug", "nonsense", "slow")
        worker = desk.worker
        await desk.until(lambda: worker.handled == 4 and worker.in_flight == 1)
        assert (worker.retried, worker.dead_lettered, worker.durations.count) == (1, 2, 4)
    assert (worker.given_back, worker.in_flight) == (1, 0)


async def test_secrets_are_in_no_dead_letter_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(retry_delays=(0.0,))
    desk.worker._mask = lambda text: text.replace("s3cr3t", "***")
    desk.engine.bodies["bug"] = ZeroDivisionError("by s3cr3t")
    async with desk.running():
        await desk.publish("bug")
        await desk.until(lambda: bool(desk.broker.dead))
    assert desk.engine.failed == [("bug", "dead-lettered: ZeroDivisionError: by ***")]
    assert desk.broker.dead[0].reason == "ZeroDivisionError: by ***"
    assert "ZeroDivisionError: by ***" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        MessageError("no sense"),
        EngineError("no way", "LIMIT"),
        DefinitionError([Problem("E010", "no nodes")]),
    ],
)
async def test_what_nobody_can_work_on_is_failed_and_dead_lettered_at_once(error: Exception) -> None:
    desk = Desk()
    desk.engine.bodies["bad"] = error
    async with desk.running():
        await desk.publish("bad", "good")
        await desk.settled()
    assert desk.engine.handled == ["good"]
    assert desk.engine.failed == [("bad", f"dead-lettered: {error}")]
    (letter,) = desk.broker.dead
    assert (letter.reason, letter.node, letter.execution) == (str(error), "bad", "exec")


async def test_told_of_the_end_that_it_brought_about_it_dead_letters_all_the_same() -> None:
    """All workers hear of an end, also the one that is about to say why."""
    desk = Desk()
    desk.engine.bodies["bad"] = MessageError("no sense")
    burying, bury = asyncio.Event(), desk.broker.dead_letter

    async def dead_letter(delivery: Delivery, reason: str) -> None:
        burying.set()
        await desk.engine.gate.wait()
        await bury(delivery, reason)

    desk.broker.dead_letter = dead_letter  # type: ignore[method-assign]
    async with desk.running():
        await desk.publish("bad")
        await burying.wait()
        desk.worker.ended("exec")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        desk.engine.gate.set()
        await desk.settled()
        await desk.until(lambda: desk.worker.handled == 1)
    assert [letter.reason for letter in desk.broker.dead] == ["no sense"]
    assert desk.worker.dead_lettered == 1


async def test_an_unexpected_error_is_tried_again_and_then_dead_lettered() -> None:
    desk = Desk(retry_delays=(0.0, 0.0, 0.0))
    desk.engine.bodies["bad"] = ZeroDivisionError("oh")
    async with desk.running():
        await desk.publish("bad", "good")
        for _ in range(5):
            await desk.engine.entered.get()
        await desk.settled()
    assert desk.engine.handled == ["good"]
    (letter,) = desk.broker.dead
    assert (letter.reason, letter.attempt) == ("ZeroDivisionError: oh", 3)


async def test_each_retry_rests_longer() -> None:
    desk = Desk()
    delays: list[float] = []

    async def retry(delivery: Delivery, delay: float) -> None:
        delays.append(delay)
        desk.broker._put((*desk.broker._taken.pop(delivery.tag)[:3], delivery.retries + 1, False))

    desk.broker.retry = retry  # type: ignore[method-assign]
    desk.engine.bodies["bad"] = ZeroDivisionError("oh")
    async with desk.running():
        await desk.publish("bad")
        await desk.settled()
    assert delays == [5.0, 25.0, 125.0]


async def test_a_failure_to_fail_does_not_stop_the_worker() -> None:
    """A message that cannot even be failed goes to the dead letters all the same."""
    desk = Desk(retry_delays=())
    desk.engine.bodies["bad"] = MessageError("no sense")

    async def fail(task: Task, error: EngineError) -> bool:
        raise KeyError("no lineage")

    desk.engine.fail = fail  # type: ignore[method-assign]
    async with desk.running() as running:
        await desk.publish("bad", "good")
        await desk.settled()
        assert not running.done()
    assert [letter.node for letter in desk.broker.dead] == ["bad"]


async def test_an_outage_stops_the_worker_and_loses_nothing() -> None:
    desk = Desk()
    desk.engine.bodies["bad"] = InfrastructureError("redis is gone")
    await desk.publish("slow", "bad")
    with pytest.raises(InfrastructureError, match="redis is gone"):
        await desk.worker.run()
    assert "slow" in desk.queued()
    assert desk.broker.dead == []


async def test_stopping_gives_back_what_is_running_and_what_was_taken() -> None:
    desk = Desk(concurrency=1)
    async with desk.running():
        await desk.publish("slow1", "slow2", "slow3")
        await desk.entered("slow1")
    assert desk.queued() == ["slow1", "slow2", "slow3"]
    assert desk.broker._taken == {}


async def test_stopping_gives_back_the_others_though_one_is_finished_already() -> None:
    """A step that takes long has given its delivery back before."""
    desk = Desk()

    async def held(delivery: Delivery) -> None:
        await desk.broker.finish(delivery)
        desk.engine.entered.put_nowait("finished")
        await desk.engine.gate.wait()

    desk.engine.bodies["held"] = held
    async with desk.running() as running:
        await desk.publish("held", "slow")
        await desk.entered("held", "finished", "slow")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert desk.queued() == ["slow"]
    assert desk.broker._taken == {}


async def test_what_still_runs_for_an_ended_execution_is_stopped() -> None:
    desk = Desk()
    async with desk.running():
        await desk.publish("slow")
        await desk.publish("slow other", execution="other")
        await desk.entered("slow", "slow other")
        desk.engine.ended["exec"] = None
        desk.engine.on_end("exec")
        await desk.until(lambda: len(desk.broker._taken) == 1)
        assert [entry[2].execution_id for entry in desk.broker._taken.values()] == ["other"]
    assert desk.queued() == ["slow other"]


async def test_a_node_that_cancels_itself_does_not_keep_its_delivery() -> None:
    desk = Desk(retry_delays=())
    desk.engine.bodies["bad"] = asyncio.CancelledError()
    async with desk.running():
        await desk.publish("bad")
        await desk.settled()
    assert [letter.node for letter in desk.broker.dead] == ["bad"]


async def test_redelivered_tasks_run_one_at_a_time() -> None:
    """One of them may be what killed a worker."""
    desk = Desk()
    inside, most = 0, 0

    async def body(delivery: Delivery) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        await desk.broker.finish(delivery)

    for i in range(3):
        desk.engine.bodies[f"t{i}"] = body
    await desk.publish(*desk.engine.bodies)
    desk.broker._queue = [(*entry[:4], True) for entry in desk.broker._queue]
    async with desk.running():
        await desk.settled()
    assert most == 1


# --- beside others, on servers ---


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
