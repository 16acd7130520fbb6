"""The Broker on RabbitMQ."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from rune.backends.rabbitmq.channel import NOT_FOUND, AmqpError, Channel, Message, Received
from rune.backends.rabbitmq.consuming import Consumer
from rune.backends.rabbitmq.declaring import EXCLUSIVE, PASSIVE
from rune.backends.rabbitmq.letters import NONSENSE, RETRIES, Letters, bury, retries_of
from rune.backends.rabbitmq.link import Link
from rune.backends.rabbitmq.publishing import Publisher, Sender
from rune.backends.rabbitmq.statuses import Statuses, decode_statuses
from rune.backends.rabbitmq.topology import (
    COMPLETION,
    CONTROL,
    EXECUTION,
    STATUS,
    TIMEOUT,
    delay_exchange,
)
from rune.backends.rabbitmq.wire import Method
from rune.core.errors import InfrastructureError, MessageError
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, decode_task, encode
from rune.core.ports import DeadLetter, Delivery

__all__ = ["RabbitBroker", "route"]

_log = logging.getLogger("rune.rabbitmq")

_HIGHEST_PRIORITY = 10
_COMPLETIONS, _STATUSES = 1000, 1000
"""How many of them a master holds at a time."""
_PATIENCE = 5.0
"""Seconds in which what was not begun is put back; after that the broker does it, as redelivered."""
_SHARE = 1.0
"""Seconds a message waits here before others are offered it."""
_SHARES = 600
"""How many times that it waits at most: a broker closes the channel of one who holds a message long."""

_decode_completion = msgspec.json.Decoder(CompletionMessage).decode


def route(task: Task) -> str:
    """The queue of a Task: everybody's, its pool's, or that of time-outs that have expired."""
    if task.phase == "expire":
        return TIMEOUT
    return f"{EXECUTION}.{task.pool}" if task.pool else EXECUTION


def _copy(message: Received, exchange: str, older: int = 0) -> Message:
    """The message once more, for the queue it came from."""
    retries = retries_of(message) + older
    headers = {RETRIES: retries} if retries else None
    return Message(exchange, message.source, message.body, message.priority, headers)


def _settle_all(consumer: Consumer, messages: Sequence[Received]) -> None:
    for message in messages:
        consumer.settle(message)


class RabbitBroker:
    """Moves messages through RabbitMQ: published with confirms, acknowledged by hand.

    One connection publishes and another consumes, because a broker that is short of memory stops reading from
    those that publish, and would then not see acknowledgements, either.
    """

    def __init__(
        self,
        outward: Link,
        inward: Link,
        *,
        queues: Sequence[str],
        retry_delays: Sequence[float],
        route: Callable[[Task], str],
        open_pool: Callable[[str], Awaitable[None]],
        status_rest: float,
    ) -> None:
        self._outward = outward
        self._inward = inward
        self._queues = queues
        self._delays = sorted(retry_delays)
        self._route = route
        self._open_pool = open_pool
        self._pools: set[str] = set()
        """Pools that have a queue, as far as we know."""
        self._unknown: set[str] = set()
        """Pools that there are Tasks for, and of which we do not know it."""
        self._publisher = Publisher(outward)
        self._sender = Sender(outward)
        self._statuses = Statuses(self._sender, status_rest)
        self._tags = itertools.count(1)
        self._taken: dict[int, tuple[Consumer, Received]] = {}
        self._completed: dict[str, list[tuple[Consumer, Received]]] = {}
        self._letters = Letters(inward, self._publisher)

    async def close(self) -> None:
        """Send the last statuses, and end all waiting."""
        await asyncio.sleep(0)  # acknowledgements of this turn go out first
        self._statuses.flush()
        self._sender.close()
        self._publisher.close()

    @property
    def up(self) -> bool:
        """Whether RabbitMQ can be reached, as far as we know."""
        return self._outward.up and self._inward.up

    @property
    def published(self) -> int:
        """Messages that were to be published with confirms."""
        return self._publisher.published

    @property
    def unconfirmed(self) -> int:
        """Those of them that are not confirmed yet."""
        return self._publisher.unconfirmed

    # --- publishing ----------------------------------------------------------------------------------------

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        messages = [self._message(task) for task in tasks]
        messages += [Message(COMPLETION, COMPLETION, encode(completion)) for completion in completions]
        await self._publish(messages)

    async def _publish(self, messages: Sequence[Message]) -> None:
        while self._unknown:
            pool = self._unknown.pop()
            await self._open_pool(pool)
            self._pools.add(pool)
        try:
            await self._publisher.publish(messages)
        except InfrastructureError:
            # It may be that a pool's queue was deleted: the next try declares it again.
            self._pools.clear()
            raise

    def _message(self, task: Task) -> Message:
        if task.pool and task.pool not in self._pools:
            self._unknown.add(task.pool)
        priority = max(0, min(task.priority, _HIGHEST_PRIORITY))
        return Message(EXECUTION, self._route(task), encode(task), priority)

    @property
    def listened(self) -> bool:
        return True

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        self._statuses.emit(statuses)

    # --- deliveries ----------------------------------------------------------------------------------------

    async def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        consumer = Consumer(self._inward, self._queues, prefetch)
        sharing = asyncio.create_task(self._share(consumer))
        try:
            while True:
                message = await consumer.take()
                try:
                    task = decode_task(message.body)
                except MessageError as error:
                    await self._park(consumer, message, str(error))
                    continue
                tag = next(self._tags)
                self._taken[tag] = consumer, message
                yield Delivery(tag, task, message.redelivered, retries_of(message))
        finally:
            sharing.cancel()
            await self._retire(consumer)

    async def _share(self, consumer: Consumer) -> None:
        """Put back what waits behind slow work here, when others have nothing to do, or for too long."""
        marks: deque[int] = deque([0] * _SHARES, _SHARES)
        while True:
            marks.append(consumer.mark)
            await asyncio.sleep(_SHARE)
            with suppress(AmqpError):
                await self._return(consumer, await consumer.surplus(marks[-1], marks[0]))

    async def _retire(self, consumer: Consumer) -> None:
        """Take no more, and put back what nobody has begun."""
        try:
            async with asyncio.timeout(_PATIENCE):
                left = await consumer.stop()
        except TimeoutError:
            consumer.close()
        else:
            await self._return(consumer, left)

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        await self.finish_all([(delivery, tasks)])

    async def finish_all(self, finished: Sequence[tuple[Delivery, Sequence[Task]]]) -> None:
        """Finish deliveries together: all is published before any is acknowledged."""
        messages = [self._message(task) for _, tasks in finished for task in tasks]
        if messages:
            await self._publish(messages)
        for delivery, _ in finished:
            self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        taken = self._taken.pop(delivery.tag, None)
        if taken is not None:
            consumer, message = taken
            consumer.settle(message)

    async def retry(self, delivery: Delivery, delay: float) -> None:
        message = self._held(delivery)
        if message is not None:
            await self._publisher.publish([_copy(message, self._delay(delay), 1)])
        self._settle(delivery)

    def _held(self, delivery: Delivery) -> Received | None:
        """The message of a delivery, unless the broker has it again."""
        consumer, message = self._taken.get(delivery.tag, (None, None))
        return message if consumer is not None and message is not None and consumer.holds(message) else None

    def _delay(self, delay: float) -> str:
        """Where a message rests that long, or a little longer."""
        if delay <= 0 or not self._delays:
            return EXECUTION
        return delay_exchange(next((d for d in self._delays if d >= delay), self._delays[-1]))

    async def give_back(self, delivery: Delivery) -> None:
        taken = self._taken.pop(delivery.tag, None)
        if taken is not None:
            consumer, message = taken
            if not consumer.put_back(message):
                await self._return(consumer, [message])

    async def _return(self, consumer: Consumer, messages: Sequence[Received]) -> None:
        """Put messages back that nobody has begun.

        As new ones: what a broker delivers again may have killed a worker, and is run alone.
        """
        fresh = [m for m in messages if not m.redelivered and consumer.holds(m)]
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._publisher.publish([_copy(message, EXECUTION) for message in fresh])
            for message in fresh:
                consumer.settle(message)
        except (TimeoutError, InfrastructureError) as error:
            _log.warning("what was not begun goes back as redelivered: %s", str(error) or "no answer in time")
        finally:
            for message in messages:
                consumer.requeue(message)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        message = self._held(delivery)
        if message is not None:
            await self._publisher.publish([bury(message, reason)])
        self._settle(delivery)

    async def _park(self, consumer: Consumer, message: Received, reason: str) -> None:
        """Park a message that makes no sense."""
        _log.warning("a message in %s is dead-lettered: %s", message.source, reason)
        try:
            await self._publisher.publish([bury(message, reason)])
            consumer.settle(message)
        finally:
            consumer.requeue(message)

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """The first dead letters; they stay where they are."""
        return await self._letters.page("", limit)

    async def letters(self, after: str, limit: int) -> list[DeadLetter]:
        return await self._letters.page(after, limit)

    async def letter(self, id: str) -> DeadLetter | None:
        return await self._letters.find(id)

    async def redrive(self, letter: str) -> bool:
        return await self._letters.settle(letter, again=True)

    async def drop(self, letter: str) -> bool:
        return await self._letters.settle(letter, again=False)

    async def depths(self, queues: Sequence[str]) -> dict[str, tuple[int, int]]:
        """How many messages are ready in each of these queues that exists, and how many take from it."""
        connection = await self._inward.connection()
        found: dict[str, tuple[int, int]] = {}
        channel = await connection.channel()
        for queue in queues:
            try:
                _, ready, consumers = await channel.call(Method.QUEUE_DECLARE, 0, queue, PASSIVE, {})
            except AmqpError as error:
                if error.code != NOT_FOUND:
                    raise
                channel = await connection.channel()
            else:
                found[queue] = ready, consumers
        channel.close()
        return found

    # --- what a master hears -------------------------------------------------------------------------------

    async def completions(self) -> AsyncIterator[CompletionMessage]:
        consumer = Consumer(self._inward, [COMPLETION], _COMPLETIONS)
        try:
            while True:
                message = await consumer.take()
                try:
                    completion = _decode_completion(message.body)
                except NONSENSE as error:
                    await self._park(consumer, message, f"not a CompletionMessage: {error}")
                    continue
                self._completed.setdefault(completion.execution_id, []).append((consumer, message))
                yield completion
        finally:
            consumer.close()

    async def completed(self, completion: CompletionMessage) -> None:
        for consumer, message in self._completed.pop(completion.execution_id, ()):
            consumer.settle(message)

    async def statuses(self) -> AsyncIterator[list[NodeStatusMessage]]:
        """Statuses, as many as there are at a time; asking for more acknowledges those before."""
        async for statuses, done in self.status_batches(_STATUSES):
            yield statuses
            done()

    async def status_batches(
        self, prefetch: int
    ) -> AsyncIterator[tuple[list[NodeStatusMessage], Callable[[], None]]]:
        """Statuses, as many as there are at a time, and what acknowledges their messages."""
        consumer = Consumer(self._inward, [STATUS], prefetch)
        try:
            while True:
                messages = [await consumer.take(), *consumer.take_ready()]
                statuses: list[NodeStatusMessage] = []
                for message in messages:
                    try:
                        statuses += decode_statuses(message.body)
                    except NONSENSE as error:
                        await self._park(consumer, message, f"not a NodeStatusMessage: {error}")
                if statuses:
                    yield statuses, partial(_settle_all, consumer, messages)
                else:
                    _settle_all(consumer, messages)
        finally:
            consumer.close()

    # --- what is said to all workers -----------------------------------------------------------------------

    async def broadcast(self, message: Mapping[str, Any]) -> None:
        """Say something to all who listen to `controls` now."""
        body = msgspec.json.encode(message)
        await self._publisher.publish([Message(CONTROL, "", body, persistent=False, mandatory=False)])

    async def controls(self) -> AsyncIterator[dict[str, Any]]:
        """What is broadcast from now on."""
        ear = f"{CONTROL}.{uuid.uuid4().hex}"

        async def listen(channel: Channel) -> None:
            await channel.call(Method.QUEUE_DECLARE, 0, ear, EXCLUSIVE, {})
            await channel.call(Method.QUEUE_BIND, 0, ear, CONTROL, "", 0, {})

        consumer = Consumer(self._inward, [ear], 1, prepare=listen, no_ack=True)
        try:
            while True:
                message = await consumer.take()
                try:
                    control = msgspec.json.decode(message.body, type=dict[str, Any])
                except NONSENSE as error:
                    _log.warning("a broadcast makes no sense: %s", error)
                    continue
                yield control
        finally:
            consumer.close()
