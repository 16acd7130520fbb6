"""The worker: many deliveries at a time; none lost, whatever goes wrong with one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.errors import DefinitionError, EngineError, InfrastructureError, MessageError, Problem
from rune.core.messages import Task
from rune.core.ports import Delivery
from tests.desk import Desk


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
