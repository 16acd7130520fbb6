"""Dead letters in RabbitMQ: read without being taken, tried again or dropped without one being lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rune.backends.rabbitmq import RabbitBroker, open_rabbitmq
from rune.backends.rabbitmq.channel import Message
from rune.backends.rabbitmq.topology import DEAD, DEAD_LETTERS, EXECUTION, STATUS
from rune.backends.rabbitmq.wire import Method
from rune.core.errors import MessageError
from rune.core.messages import encode
from tests.backends.rabbitmq.taking import Place, connected, next_of, taking, task


async def buried(broker: RabbitBroker, *names: str) -> None:
    """Have these Tasks given up."""
    await broker.publish([task(name) for name in names])
    async with taking(broker.deliveries(10)) as deliveries:
        for _ in names:
            delivery = await next_of(deliveries)
            await broker.dead_letter(delivery, f"why {delivery.task.current_node}")


async def test_a_letter_that_is_tried_again_is_delivered_once(broker: RabbitBroker, place: Place) -> None:
    await buried(broker, "a", "b", "c")
    letters = await broker.letters("", 10)
    assert [letter.reason for letter in letters] == ["why a", "why b", "why c"]
    assert await broker.redrive(letters[1].id)
    assert [letter.node for letter in await broker.letters("", 10)] == ["a", "c"]
    async with taking(broker.deliveries(10)) as deliveries:
        delivery = await next_of(deliveries)
        assert (delivery.task, delivery.retries) == (task("b"), 0)
        await broker.finish(delivery)
    await place.settles(EXECUTION, 0)
    await place.settles(DEAD, 2)


async def test_what_is_no_task_cannot_be_tried_again_and_stays(broker: RabbitBroker, place: Place) -> None:
    async with connected(place.url) as (_, client), taking(broker.deliveries(10)) as deliveries:
        # Both on one channel, so that the good one comes second.
        client.channel.publish(Message(EXECUTION, EXECUTION, b"nonsense"))
        client.channel.publish(Message(EXECUTION, EXECUTION, encode(task("good"))))
        await next_of(deliveries)
    (letter,) = await broker.letters("", 10)
    with pytest.raises(MessageError):
        await broker.redrive(letter.id)
    assert await broker.letters("", 10) == [letter]
    assert await broker.drop(letter.id)
    await place.settles(DEAD, 0)


async def test_two_who_read_at_once_see_the_same(broker: RabbitBroker, place: Place) -> None:
    await buried(broker, *"abcde")
    async with open_rabbitmq(place.url) as other:
        seen = await asyncio.gather(*(broker.letters("", 10) for _ in range(3)))
        assert [len(letters) for letters in seen] == [5, 5, 5]
        assert await other.letters(seen[0][2].id, 10) == seen[0][3:]
    await place.settles(DEAD, 5)


async def test_all_of_many_letters_can_be_seen_and_tried_again(broker: RabbitBroker, place: Place) -> None:
    names = [f"n{number}" for number in range(1250)]
    async with connected(place.url) as (_, client):
        for number, name in enumerate(names):
            headers = {"reason": "why", "at": number}
            client.channel.publish(Message(DEAD_LETTERS, "", encode(task(name)), headers=headers))
    await place.settles(DEAD, 1250)
    seen, after = [], ""
    while letters := await broker.letters(after, 500):
        seen += [letter.node for letter in letters]
        after = letters[-1].id
    assert seen == names
    last = await broker.letter(after)
    assert last is not None
    assert last.node == names[-1]
    assert await broker.redrive(last.id)
    await place.settles(DEAD, 1249)
    await place.settles(EXECUTION, 1)


async def test_letters_are_back_before_somebody_else_asks(place: Place) -> None:
    for quorum in (False, True):
        vhost = place.server.add_vhost()
        async with open_rabbitmq(place.server.url(vhost), quorum=quorum) as broker:
            await buried(broker, *"abcde")
            async with open_rabbitmq(place.server.url(vhost), quorum=quorum) as other:
                for _ in range(20):
                    counts = [len(await each.letters("", 10)) for each in (broker, other)]
                    assert counts == [5, 5]
        place.server.delete_vhost(vhost)


@pytest.mark.parametrize(
    "headers", [{}, {"attempt": "first", "at": "noon"}, {"attempt": -1, "at": 2**62, "reason": {"a": 1}}]
)
async def test_what_others_wrote_on_a_letter_keeps_nobody_from_reading(
    broker: RabbitBroker, place: Place, headers: dict[str, Any]
) -> None:
    async with connected(place.url) as (_, client):
        client.channel.publish(Message(DEAD_LETTERS, "", encode(task("a")), headers=headers))
    await place.settles(DEAD, 1)
    (letter,) = await broker.letters("", 10)
    assert (letter.node, letter.execution, letter.attempt, letter.at) == ("a", "exec_1", 0, 0.0)
    assert await broker.redrive(letter.id)


async def test_what_the_broker_gives_up_after_a_retry_goes_back_where_it_was(place: Place) -> None:
    arguments = {"x-message-ttl": 300, "x-dead-letter-exchange": DEAD_LETTERS}
    async with connected(place.url) as (_, client):
        await client.channel.call(Method.QUEUE_DECLARE, 0, EXECUTION, 2, arguments)
    async with open_rabbitmq(place.url, retry_delays=[0.05]) as broker:
        await broker.publish([task("a")])
        async with taking(broker.deliveries(1)) as deliveries:
            await broker.retry(await next_of(deliveries), 0.05)
        await place.settles(DEAD, 1)
        (letter,) = await broker.letters("", 10)
        assert (letter.reason, letter.node, letter.execution) == ("expired", "a", "exec_1")
        assert abs(letter.at - time.time()) < 60
        async with taking(broker.deliveries(1)) as deliveries:
            assert await broker.redrive(letter.id)
            assert (await next_of(deliveries)).task == task("a")


async def test_queues_have_a_depth_and_takers(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b")])
    await place.settles(EXECUTION, 2)
    assert await broker.depths([EXECUTION, "no.such.queue", STATUS]) == {EXECUTION: (2, 0), STATUS: (0, 0)}
