"""Dead letters in RabbitMQ: read without being taken, tried again or dropped without one being lost."""

from __future__ import annotations

import asyncio

import pytest

from rune.backends.rabbitmq import RabbitBroker, open_rabbitmq
from rune.backends.rabbitmq.channel import Message
from rune.backends.rabbitmq.topology import DEAD, EXECUTION, STATUS
from rune.core.errors import MessageError
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
        client.channel.publish(Message(EXECUTION, EXECUTION, b"nonsense"))
        await broker.publish([task("good")])
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


async def test_queues_have_a_depth_and_takers(broker: RabbitBroker, place: Place) -> None:
    await broker.publish([task("a"), task("b")])
    await place.settles(EXECUTION, 2)
    assert await broker.depths([EXECUTION, "no.such.queue", STATUS]) == {EXECUTION: (2, 0), STATUS: (0, 0)}
