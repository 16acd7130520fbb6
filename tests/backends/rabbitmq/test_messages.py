"""Messages through RabbitMQ: confirmed, in order of priority, retried, buried, given back."""

from __future__ import annotations

import asyncio
import json

import pytest

from rune.backends.rabbitmq import RabbitBroker, open_rabbitmq
from rune.backends.rabbitmq.channel import Message
from rune.backends.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, STATUS, TIMEOUT
from rune.backends.rabbitmq.wire import Method
from rune.core.errors import InfrastructureError
from rune.core.messages import CompletionMessage, decode_task, encode
from tests.backends.rabbitmq.taking import Place, connected, next_of, status, taking, task


def completion(execution: str) -> CompletionMessage:
    return CompletionMessage(
        workflow_id="wf",
        execution_id=execution,
        status="completed",
        final_context={},
        completed_at="",
        total_duration_ms=1,
    )


async def test_what_is_published_is_delivered(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b")])
    async with taking(broker.deliveries(10)) as deliveries:
        first, second = await next_of(deliveries), await next_of(deliveries)
        assert (first.task, first.redelivered, first.retries) == (task("a"), False, 0)
        assert second.task == task("b")
        await broker.finish(first, [task("c")])
        assert (await next_of(deliveries)).task == task("c")


async def test_a_task_travels_as_its_json_and_nothing_else(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a", priority=3)], [completion("e")])
    async with connected(place.url) as (_, reader):
        (message,) = await reader.read(EXECUTION)
        assert (message.body, message.headers, message.priority) == (encode(task("a", priority=3)), {}, 3)
        (message,) = await reader.read(COMPLETION)
        assert message.body == encode(completion("e"))


async def test_a_plain_client_is_understood(broker: RabbitBroker, place: Place) -> None:
    body = {"workflow_id": "w", "execution_id": "e", "current_node": "n", "accumulated_context": {}}
    async with connected(place.url) as (_, client), taking(broker.deliveries(10)) as deliveries:
        headers = {"x-retries": "many", "nested": {"deep": 1, "on": True}}
        client.channel.publish(Message("", EXECUTION, json.dumps(body).encode(), headers=headers))
        delivery = await next_of(deliveries)
        assert (delivery.task.current_node, delivery.retries) == ("n", 0)


async def test_a_message_larger_than_a_frame_arrives_whole(broker: RabbitBroker) -> None:
    large = task("a", path="p" * 500_000)
    await broker.publish([large, task("b")])
    async with taking(broker.deliveries(10)) as deliveries:
        assert (await next_of(deliveries)).task == large
        assert (await next_of(deliveries)).task == task("b")


async def test_more_than_the_socket_takes_at_once_is_published(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task(f"n{i}", path="p" * 400_000) for i in range(50)])
    assert place.depth(EXECUTION) == (50, 0)


async def test_a_message_no_queue_takes_has_failed(place: Place) -> None:
    async with open_rabbitmq(place.url, route=lambda task: task.current_node) as broker:
        with pytest.raises(InfrastructureError, match=r"no queue takes messages to .+ for 'nowhere'"):
            await broker.publish([task("nowhere")])
        async with taking(broker.deliveries(10)) as deliveries:
            await broker.publish([task(EXECUTION)])
            delivery = await next_of(deliveries)
            with pytest.raises(InfrastructureError, match="NO_ROUTE"):
                await broker.finish(delivery, [task(EXECUTION), task("nowhere"), task(EXECUTION)])
            assert place.depth(EXECUTION)[1] >= 1  # it was not acknowledged


async def test_the_highest_priority_comes_first(broker: RabbitBroker) -> None:
    await broker.publish([task("b"), task("high", priority=9), task("c"), task("highest", priority=99)])
    async with taking(broker.deliveries(1)) as deliveries:
        names = []
        for _ in range(4):
            delivery = await next_of(deliveries)
            names.append(delivery.task.current_node)
            await broker.finish(delivery)
    assert names == ["highest", "high", "b", "c"]


async def test_a_higher_priority_overtakes_what_was_prefetched(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b"), task("c")])
    async with taking(broker.deliveries(10)) as deliveries:
        assert (await next_of(deliveries)).task.current_node == "a"
        await broker.publish([task("urgent", priority=1)])
        await place.settles(EXECUTION, 0, 4)
        await asyncio.sleep(0.05)
        assert (await next_of(deliveries)).task.current_node == "urgent"


async def test_no_more_than_prefetch_are_unfinished(broker: RabbitBroker) -> None:
    await broker.publish([task(name) for name in "abcd"] + [task("e", phase="expire")])
    async with taking(broker.deliveries(2)) as deliveries:
        first, _ = await next_of(deliveries), await next_of(deliveries)
        waiting = asyncio.ensure_future(next_of(deliveries))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await broker.finish(first)
        assert (await waiting).tag


async def test_time_outs_have_a_queue_of_their_own(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a", phase="expire")])
    assert place.depth(TIMEOUT) == (1, 0)
    async with taking(broker.deliveries(10)) as deliveries:
        delivery = await next_of(deliveries)
        assert delivery.task.phase == "expire"
        await broker.retry(delivery, 0)
        again = await next_of(deliveries)
        assert again.retries == 1
        await broker.finish(again)
        await place.settles(TIMEOUT, 0)


async def test_a_pool_takes_its_own_work(place: Place) -> None:
    queue = f"{EXECUTION}.gpu"
    async with (
        open_rabbitmq(place.url) as broker,
        open_rabbitmq(place.url, queues=[queue], retry_delays=[0.05]) as worker,
        taking(worker.deliveries(10)) as deliveries,
    ):
        await broker.publish([task("a", pool="gpu"), task("b"), task("x", pool="gpu", phase="expire")])
        assert (place.depth(EXECUTION), place.depth(TIMEOUT)) == ((1, 0), (1, 0))
        await worker.retry(await next_of(deliveries), 0.05)
        again = await next_of(deliveries)
        assert (again.task.current_node, again.retries) == ("a", 1)
        await worker.finish(again)
        await place.settles(queue, 0)


async def test_what_is_for_a_pool_waits_for_its_workers(broker: RabbitBroker, place: Place) -> None:
    queue = f"{EXECUTION}.gpu"
    await broker.publish([task("a", pool="gpu"), task("b", pool="gpu")])
    assert place.depth(queue) == (2, 0)
    await broker.publish([task("c", pool="gpu")])
    place.delete(queue)
    with pytest.raises(InfrastructureError, match="no queue takes"):
        await broker.publish([task("d", pool="gpu")])
    await broker.publish([task("d", pool="gpu")])
    assert place.depth(queue) == (1, 0)


async def test_many_acknowledgements_in_any_order_settle_everything(
    broker: RabbitBroker, place: Place
) -> None:
    await broker.publish([task(f"n{i}") for i in range(500)])
    async with taking(broker.deliveries(500)) as deliveries:
        taken = [await next_of(deliveries) for _ in range(500)]
        for some in (taken[1::7], taken[::3], taken[::-1]):
            for delivery in some:
                await broker.finish(delivery)
            await asyncio.sleep(0)
        await broker.finish(taken[0])
        await place.settles(EXECUTION, 0)


async def test_a_retry_comes_after_its_delay(place: Place) -> None:
    async with open_rabbitmq(place.url, retry_delays=[0.2, 5]) as broker:
        await broker.publish([task("a", priority=4), task("b")])
        async with taking(broker.deliveries(10)) as deliveries:
            loop = asyncio.get_running_loop()
            start = loop.time()
            await broker.retry(await next_of(deliveries), 0.1)
            assert place.depth(f"{EXECUTION}.retry.200ms") == (1, 0)
            assert (await next_of(deliveries)).task.current_node == "b"
            again = await next_of(deliveries)
            assert loop.time() - start >= 0.19
            assert (again.task, again.redelivered, again.retries) == (task("a", priority=4), False, 1)
            await broker.retry(again, 0.2)
            assert (await next_of(deliveries)).retries == 2


async def test_a_dead_letter_says_why(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a")])
    async with taking(broker.deliveries(10)) as deliveries:
        delivery = await next_of(deliveries)
        await broker.retry(delivery, 0)
        await broker.dead_letter(await next_of(deliveries), "no sense")
        (letter,) = await broker.dead_letters()
        assert (letter.reason, letter.node, letter.execution, letter.attempt) == (
            "no sense",
            "a",
            "exec_1",
            1,
        )
        assert letter.body == encode(task("a"))
        await place.settles(EXECUTION, 0)
        await place.settles(DEAD, 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not a NodeExecutionMessage: "),
        (b"", "not a NodeExecutionMessage: "),
        (b"\xff\xfe", "not a NodeExecutionMessage: "),
        (b'{"execution_id": "e1", "current_node": 7}', "at `$.current_node`"),
        (b'{"execution_id": {"a": 1}, "current_node": "n"}', "not a NodeExecutionMessage: "),
        (b'{"accumulated_context": {"$x": ' + b"[" * 100_000, "not a NodeExecutionMessage: "),
    ],
)
async def test_a_bad_message_is_parked(broker: RabbitBroker, place: Place, body: bytes, reason: str) -> None:
    async with connected(place.url) as (_, client), taking(broker.deliveries(10)) as deliveries:
        client.channel.publish(Message(EXECUTION, EXECUTION, body))
        client.channel.publish(Message(EXECUTION, EXECUTION, encode(task("good"))))
        assert (await next_of(deliveries)).task.current_node == "good"
        (letter,) = await broker.dead_letters()
        assert reason in letter.reason
        assert letter.body == body
        if b"e1" in body:
            assert (letter.execution, letter.node) == ("e1", "7")
        await place.settles(EXECUTION, 0, 1)


async def test_what_is_given_back_is_as_if_never_taken(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b"), task("c")])
    async with taking(broker.deliveries(2)) as deliveries:
        first = await next_of(deliveries)
        await broker.give_back(first)
        again = await next_of(deliveries)
        assert (again.task.current_node, again.redelivered) == ("a", False)
        assert again.tag != first.tag
    await broker.give_back(again)  # nobody takes any more: it goes back to the queue
    await place.settles(EXECUTION, 3)
    async with open_rabbitmq(place.url) as other, taking(other.deliveries(10)) as deliveries:
        came = [await next_of(deliveries) for _ in range(3)]
        assert sorted((d.task.current_node, d.redelivered) for d in came) == [
            ("a", False),
            ("b", False),
            ("c", False),
        ]


async def test_slow_work_does_not_hold_what_others_could_do(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task(f"n{i}") for i in range(10)])
    async with taking(broker.deliveries(10)) as slow:
        first = await next_of(slow)
        await place.settles(EXECUTION, 0, 10)
        async with open_rabbitmq(place.url) as idle, taking(idle.deliveries(10)) as deliveries:
            seen: set[str] = set()
            while len(seen) < 9:
                delivery = await next_of(deliveries)
                assert not delivery.redelivered
                seen.add(delivery.task.current_node)
                await idle.finish(delivery)
        assert first.task.current_node not in seen
        await broker.finish(first)
        await place.settles(EXECUTION, 0)


async def test_what_waits_for_long_is_put_back_before_the_broker_loses_patience(
    broker: RabbitBroker, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is there; a broker would close our channel, and all of it would count as redelivered."""
    monkeypatch.setattr("rune.backends.rabbitmq.broker._SHARE", 0.05)
    monkeypatch.setattr("rune.backends.rabbitmq.broker._SHARES", 4)
    async with connected(place.url) as (_, client), taking(broker.deliveries(10)) as deliveries:
        await client.channel.call(Method.QUEUE_DECLARE, 0, "ear", 4, {})
        await client.channel.call(Method.QUEUE_BIND, 0, "ear", EXECUTION, EXECUTION, 0, {})
        await client.consume("ear")
        await broker.publish([task("slow"), task("waiting")])
        slow = await next_of(deliveries)
        heard = [decode_task((await client.next()).body).current_node for _ in range(3)]
        assert heard == ["slow", "waiting", "waiting"]
        waiting = await next_of(deliveries)
        assert (waiting.task.current_node, waiting.redelivered) == ("waiting", False)
        await broker.finish(slow)
        await broker.finish(waiting)
        await place.settles(EXECUTION, 0)


async def test_a_redelivered_message_stays_one_when_given_back(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a")])
    async with connected(place.url) as (_, client):
        await client.channel.call(Method.BASIC_CONSUME, 0, EXECUTION, "", 0, {})
        await client.next()
    async with taking(broker.deliveries(1)) as deliveries:
        delivery = await next_of(deliveries)
        assert delivery.redelivered
    await broker.give_back(delivery)
    async with taking(broker.deliveries(1)) as deliveries:
        assert (await next_of(deliveries)).redelivered


async def test_finishing_twice_does_no_harm(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b")])
    async with taking(broker.deliveries(10)) as deliveries:
        delivery = await next_of(deliveries)
        await asyncio.gather(broker.finish(delivery), broker.finish(delivery))
        await broker.finish(delivery)
        await broker.give_back(delivery)
        await broker.retry(delivery, 0)
        await broker.dead_letter(delivery, "late")
        await broker.finish(await next_of(deliveries))
        await place.settles(EXECUTION, 0)
        assert await broker.dead_letters() == []


async def test_completions_stay_until_they_are_completed(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([], [completion("e1"), completion("e2")])
    async with connected(place.url) as (_, client):
        client.channel.publish(Message(COMPLETION, COMPLETION, b"nonsense"))
        async with taking(broker.completions()) as completions:
            assert await next_of(completions) == completion("e1")
            assert await next_of(completions) == completion("e2")
            await broker.completed(completion("e1"))
            await broker.completed(completion("e1"))
            with pytest.raises(TimeoutError):
                await next_of(completions, 0.2)
    async with taking(broker.completions()) as completions:
        assert await next_of(completions) == completion("e2")
        await broker.completed(completion("e2"))
        await place.settles(COMPLETION, 0)
    (letter,) = await broker.dead_letters()
    assert letter.reason.startswith("not a CompletionMessage")


async def test_statuses_are_one_object_a_message(broker: RabbitBroker, place: Place) -> None:
    assert broker.listened
    broker.emit([status("a"), status("b")])
    async with connected(place.url) as (_, reader):
        messages = await reader.read(STATUS, 2)
        assert [message.body for message in messages] == [encode(status("a")), encode(status("b"))]


async def test_statuses_can_travel_together(place: Place) -> None:
    async with open_rabbitmq(place.url, status_batch_ms=20) as broker:
        broker.emit([status("a"), status("b")])
        broker.emit([status("c")])
        async with connected(place.url) as (_, reader):
            (message,) = await reader.read(STATUS)
            assert [s["node_id"] for s in json.loads(message.body)] == ["a", "b", "c"]
            broker.emit([status("x" * 1000) for _ in range(100)])
            sizes = [len((await reader.next()).body) for _ in range(3)]
            assert max(sizes) < 50_000
        broker.emit([status("last")])
    async with open_rabbitmq(place.url) as broker, taking(broker.statuses()) as statuses:
        assert [s.node_id for s in await next_of(statuses)] == ["last"]


async def test_a_master_reads_both_kinds_of_statuses(broker: RabbitBroker, place: Place) -> None:
    async with (
        open_rabbitmq(place.url, status_batch_ms=1) as batching,
        connected(place.url) as (_, client),
        taking(broker.statuses()) as statuses,
    ):
        client.channel.publish(Message(STATUS, STATUS, b"nonsense"))
        broker.emit([status("a")])
        batching.emit([status("b"), status("c")])
        heard: list[str] = []
        while len(heard) < 3:
            heard += [s.node_id for s in await next_of(statuses)]
        assert sorted(heard) == ["a", "b", "c"]
        with pytest.raises(TimeoutError):
            await next_of(statuses, 0.1)
    await place.settles(STATUS, 0)
    assert "not a NodeStatusMessage" in (await broker.dead_letters())[0].reason


async def test_no_statuses_at_all_are_acknowledged_too(broker: RabbitBroker, place: Place) -> None:
    async with connected(place.url) as (_, client), taking(broker.statuses()) as statuses:
        client.channel.publish(Message(STATUS, STATUS, b"[]"))
        await place.settles(STATUS, 1)
        listening = asyncio.ensure_future(next_of(statuses, 20))
        await place.settles(STATUS, 0)
        broker.emit([status("a")])
        assert [s.node_id for s in await listening] == ["a"]


async def test_a_broadcast_reaches_everybody(broker: RabbitBroker, place: Place) -> None:
    await broker.broadcast({"ended": "nobody listens"})
    async with (
        open_rabbitmq(place.url) as other,
        taking(broker.controls()) as one,
        taking(other.controls()) as two,
    ):
        listening = [asyncio.ensure_future(next_of(each)) for each in (one, two)]
        while not all(each.done() for each in listening):
            await broker.broadcast({"ended": "e1"})
            await asyncio.sleep(0.02)
        assert [each.result() for each in listening] == [{"ended": "e1"}, {"ended": "e1"}]
