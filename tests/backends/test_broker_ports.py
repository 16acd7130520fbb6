"""What the Broker promises, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from msgspec import Raw

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, decode_task
from rune.core.ports import Broker, Delivery
from tests.backends.conftest import Clock


def task(name: str, *, priority: int = 0, execution: str = "exec_1") -> Task:
    return Task(
        workflow_id="wf",
        execution_id=execution,
        current_node=name,
        accumulated_context={"x": Raw(b"1")},
        priority=priority,
    )


def completion(execution: str, status: Any = "completed") -> CompletionMessage:
    return CompletionMessage(
        workflow_id="wf",
        execution_id=execution,
        status=status,
        final_context={},
        completed_at="",
        total_duration_ms=1,
    )


class Worker:
    """Takes deliveries one by one."""

    def __init__(self, broker: Broker, prefetch: int = 100) -> None:
        self.deliveries: AsyncIterator[Delivery] = broker.deliveries(prefetch)

    async def take(self) -> Delivery:
        return await asyncio.wait_for(anext(self.deliveries), 5)

    async def names(self, count: int) -> list[str]:
        return [(await self.take()).task.current_node for _ in range(count)]


@pytest.fixture
async def worker(broker: Broker) -> AsyncIterator[Worker]:
    worker = Worker(broker)
    async with aclosing(worker.deliveries):  # type: ignore[type-var]
        yield worker


async def nothing_comes(worker: Worker) -> bool:
    waiting = asyncio.ensure_future(anext(worker.deliveries))
    await asyncio.sleep(0.02)
    came = waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return not came


async def test_what_is_published_is_delivered_in_order(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("a"), task("b")])
    await broker.publish([task("c")])
    first = await worker.take()
    assert (first.task, first.redelivered, first.retries) == (task("a"), False, 0)
    assert await worker.names(2) == ["b", "c"]


async def test_the_highest_priority_comes_first(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("low", priority=-5), task("b"), task("high", priority=10), task("c")])
    await broker.publish([task("highest", priority=11), task("high too", priority=10)])
    assert await worker.names(6) == ["highest", "high", "high too", "b", "c", "low"]


async def test_a_higher_priority_overtakes_what_waits(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("a"), task("b"), task("c")])
    assert await worker.names(1) == ["a"]
    await broker.publish([task("urgent", priority=1)])
    assert await worker.names(3) == ["urgent", "b", "c"]


async def test_who_waits_is_woken(broker: Broker, worker: Worker) -> None:
    waiting = asyncio.ensure_future(worker.take())
    await asyncio.sleep(0.01)
    await broker.publish([task("a")])
    assert (await waiting).task.current_node == "a"


async def test_no_more_than_prefetch_are_unfinished(broker: Broker) -> None:
    worker = Worker(broker, prefetch=2)
    await broker.publish([task(name) for name in "abcd"])
    first, _ = await worker.take(), await worker.take()
    waiting = asyncio.ensure_future(worker.take())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await broker.finish(first)
    assert (await waiting).task.current_node == "c"


async def test_finishing_publishes_what_follows(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("a")])
    delivery = await worker.take()
    await broker.finish(delivery, [task("b"), task("c")])
    assert await worker.names(2) == ["b", "c"]


async def test_finishing_twice_does_no_harm(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("a"), task("b")])
    delivery = await worker.take()
    await asyncio.gather(broker.finish(delivery), broker.finish(delivery))
    await broker.finish(delivery)
    assert await worker.names(1) == ["b"]
    assert await nothing_comes(worker)


async def test_what_is_given_back_comes_as_if_for_the_first_time(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("a"), task("b")])
    delivery = await worker.take()
    await broker.give_back(delivery)
    again = await worker.take()
    assert (again.task.current_node, again.redelivered, again.retries) == ("a", False, 0)
    assert again.tag != delivery.tag
    assert await worker.names(1) == ["b"]


async def test_a_retry_comes_later_and_is_counted(broker: Broker, worker: Worker, clock: Clock) -> None:
    await broker.publish([task("a"), task("b")])
    await broker.retry(await worker.take(), 0.05)
    assert await worker.names(1) == ["b"]
    clock.advance(0.06)
    again = await worker.take()
    assert (again.task.current_node, again.redelivered, again.retries) == ("a", False, 1)
    await broker.retry(again, 0)
    assert (await worker.take()).retries == 2


async def test_a_dead_letter_does_not_come_back(broker: Any, worker: Worker) -> None:
    await broker.publish([task("a")])
    await broker.dead_letter(await worker.take(), "no sense")
    assert await nothing_comes(worker)
    (letter,) = broker.dead
    assert (letter.reason, letter.node, letter.execution, letter.attempt) == ("no sense", "a", "exec_1", 0)
    assert decode_task(letter.body) == task("a")


async def test_dead_letters_can_be_read_tried_again_and_dropped(broker: Broker, worker: Worker) -> None:
    await broker.publish([task("a"), task("b"), task("c")])
    for _ in range(3):
        delivery = await worker.take()
        await broker.dead_letter(delivery, f"why {delivery.task.current_node}")
    first, second, third = await broker.letters("", 10)
    assert [letter.reason for letter in (first, second, third)] == ["why a", "why b", "why c"]
    assert first.at > 0
    assert await broker.letters(first.id, 1) == [second]
    assert await broker.letter(third.id) == third
    assert await broker.redrive(second.id)
    assert (await worker.take()).task == task("b")
    assert await broker.drop(first.id)
    assert not await broker.drop(first.id)
    assert not await broker.redrive(first.id)
    assert not await broker.redrive("nothing")
    assert await broker.letters("", 10) == [third]


async def test_completions_come_in_order(broker: Broker) -> None:
    await broker.publish([], [completion("exec_1")])
    completions = broker.completions()
    assert await asyncio.wait_for(anext(completions), 5) == completion("exec_1")
    waiting = asyncio.ensure_future(anext(completions))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await broker.publish([task("a")], [completion("exec_2", "failed")])
    assert await asyncio.wait_for(waiting, 5) == completion("exec_2", "failed")
    await broker.completed(completion("exec_1"))
    await broker.completed(completion("exec_1"))


async def test_statuses_go_to_whoever_listens(broker: Any) -> None:
    status = NodeStatusMessage(
        workflow_id="wf", execution_id="e", node_id="n", status="success", executed_at="", duration_ms=0
    )
    assert not broker.listened
    broker.emit([status])
    heard: list[NodeStatusMessage] = []
    broker.listeners.append(heard.extend)
    assert broker.listened
    broker.emit([status])
    assert heard == [status]


async def test_many_messages_come_each_once_in_order(broker: Broker, worker: Worker) -> None:
    names = [f"n{i}" for i in range(5000)]
    for at in range(0, 5000, 500):
        await broker.publish([task(name) for name in names[at : at + 500]])
    seen: list[str] = []
    finishing: list[asyncio.Future[None]] = []
    while len(seen) < 5000:
        delivery = await worker.take()
        seen.append(delivery.task.current_node)
        finishing.append(asyncio.ensure_future(broker.finish(delivery)))
    await asyncio.gather(*finishing)
    assert seen == names
