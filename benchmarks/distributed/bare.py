"""The yardstick: what a bare loop does with the same client, the same queues and bodies of the same size."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from benchmarks.distributed.meters import Meter, Run
from rune.backends.rabbitmq.address import parse_url
from rune.backends.rabbitmq.channel import Channel, Message, Received
from rune.backends.rabbitmq.connection import connect
from rune.backends.rabbitmq.declaring import EXCLUSIVE, Declarer
from rune.backends.rabbitmq.topology import COMPLETION, EXECUTION, describe
from rune.backends.rabbitmq.wire import Method

__all__ = ["IN_FLIGHT", "RoundTrips", "loop", "overhearing", "round_trips"]

IN_FLIGHT = 100


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Channel]:
    """A channel of a connection of its own, where all that Rune has in RabbitMQ is declared."""
    connection = await connect(parse_url(url), "bare")
    try:
        await Declarer(describe()).declare(connection)
        yield await connection.channel()
    finally:
        await connection.close()


class Relay:
    """Publishes a message for each that comes, and acknowledges this one when that one is confirmed.

    Of what is published, the first `ahead` are answers to nothing.
    """

    def __init__(self, channel: Channel, exchange: str, *, ahead: int = 0, rounds: int = sys.maxsize) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._channel = channel
        self._exchange = exchange
        self._ahead = ahead
        self._rounds = rounds
        channel.on_message = self._came
        channel.on_confirm = self._confirmed

    async def run(self, body: bytes = b"") -> None:
        """Start; `ended` is done when the last round is."""
        await self._channel.call(Method.CONFIRM_SELECT, 0)
        await self._channel.call(Method.BASIC_QOS, 0, 2 * IN_FLIGHT, 0)
        for _ in range(self._ahead):
            self._publish(body)
        await self._channel.call(Method.BASIC_CONSUME, 0, EXECUTION, EXECUTION, 0, {})

    def _publish(self, body: bytes) -> None:
        self._channel.publish(Message(self._exchange, self._exchange, body))

    def _came(self, message: Received) -> None:
        if message.tag <= self._rounds:
            self._publish(message.body)
        else:
            self._channel.send(Method.BASIC_ACK, message.tag, 0)
            if message.tag == self._rounds + self._ahead:
                self.ended.set_result(None)

    def _confirmed(self, tag: int, multiple: bool, ok: bool) -> None:
        if tag > self._ahead:
            self._channel.send(Method.BASIC_ACK, tag - self._ahead, int(multiple))


async def loop(url: str, processes: Mapping[str, int], size: int, rounds: int) -> Run:
    """Messages that are consumed, published with confirms and acknowledged, 100 in flight."""
    async with opened(url) as channel:
        relay = Relay(channel, EXECUTION, ahead=IN_FLIGHT, rounds=rounds)
        await relay.run(b"x" * size)
        meter = Meter(processes)
        await relay.ended
        return meter.run(rounds)


class RoundTrips:
    """Publishes a message, and waits for what comes of it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._came: asyncio.Future[Received]
        channel.on_message = lambda message: self._came.set_result(message)

    async def seconds(self, body: bytes) -> float:
        """Seconds until a completion has come; nothing else may be under way."""
        self._came = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        self._channel.publish(Message(EXECUTION, EXECUTION, body))
        message = await self._came
        took = time.perf_counter() - began
        self._channel.send(Method.BASIC_ACK, message.tag, 0)
        return took


@asynccontextmanager
async def round_trips(url: str) -> AsyncIterator[RoundTrips]:
    """Somebody who publishes Tasks and hears completions."""
    async with opened(url) as channel:
        trips = RoundTrips(channel)
        await channel.call(Method.BASIC_CONSUME, 0, COMPLETION, COMPLETION, 0, {})
        yield trips


@asynccontextmanager
async def overhearing(url: str, heard: Callable[[Received], None]) -> AsyncIterator[None]:
    """Hear every Task that is published meanwhile."""
    async with opened(url) as channel:
        channel.on_message = heard
        await channel.call(Method.QUEUE_DECLARE, 0, "overheard", EXCLUSIVE, {})
        await channel.call(Method.QUEUE_BIND, 0, "overheard", EXECUTION, EXECUTION, 0, {})
        await channel.call(Method.BASIC_CONSUME, 0, "overheard", "overheard", 2, {})
        yield


async def echo(url: str) -> None:
    """Answer every Task with a completion, until killed."""
    async with opened(url) as channel:
        relay = Relay(channel, COMPLETION)
        await relay.run()
        print("echo ready", flush=True)
        await relay.ended


if __name__ == "__main__":
    asyncio.run(echo(sys.argv[1]))
