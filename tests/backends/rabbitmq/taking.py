"""What the tests of RabbitMQ share: messages, and ways to look at what is in a queue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from msgspec import Raw

from rune.backends.rabbitmq.address import parse_url
from rune.backends.rabbitmq.channel import Channel, Received
from rune.backends.rabbitmq.connection import Connection, connect
from rune.backends.rabbitmq.wire import Method
from rune.core.messages import NodeStatusMessage, Task
from tests.servers.rabbitmq import RabbitMQ

__all__ = ["Place", "Reader", "connected", "next_of", "status", "taking", "task"]

T = TypeVar("T")


class Place(NamedTuple):
    """A virtual host of a server."""

    server: RabbitMQ
    vhost: str

    @property
    def url(self) -> str:
        return self.server.url(self.vhost)

    def url_of(self, user: str) -> str:
        return self.server.url(self.vhost, user, user)

    def depth(self, queue: str) -> tuple[int, int]:
        """How many messages wait, and how many are taken and not settled."""
        name = f'rabbit_misc:r(<<"{self.vhost}">>, queue, <<"{queue}">>)'
        said = self.server.eval(
            f"begin {{ok, Q}} = rabbit_amqqueue:lookup({name}), "
            "[R, U] = rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged]), "
            "{element(2, R), element(2, U)} end"
        )
        ready, taken = (int(number) for number in re.findall(r"\d+", said))
        return ready, taken

    def delete(self, queue: str) -> None:
        """Delete a queue with all that is in it."""
        name = f'rabbit_misc:r(<<"{self.vhost}">>, queue, <<"{queue}">>)'
        self.server.eval(
            f"begin {{ok, Q}} = rabbit_amqqueue:lookup({name}), "
            'rabbit_amqqueue:delete(Q, false, false, <<"tests">>), ok end'
        )

    async def settles(self, queue: str, ready: int, taken: int = 0) -> None:
        """Wait until a queue has come to rest like this."""
        for _ in range(200):
            if self.depth(queue) == (ready, taken):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{queue}: {self.depth(queue)}, not {(ready, taken)}")


def task(node: str, **fields: Any) -> Task:
    """A Task."""
    fields = {"workflow_id": "wf", "execution_id": "exec_1", "accumulated_context": {"x": Raw(b"1")}} | fields
    return Task(current_node=node, **fields)


def status(node: str) -> NodeStatusMessage:
    """A status."""
    return NodeStatusMessage(
        workflow_id="wf", execution_id="e", node_id=node, status="success", executed_at="", duration_ms=0
    )


async def next_of(messages: AsyncIterator[T], seconds: float = 10) -> T:
    """The next one, soon."""
    return await asyncio.wait_for(anext(messages), seconds)


@asynccontextmanager
async def taking(messages: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close an iterator after use."""
    async with aclosing(messages):  # type: ignore[type-var]
        yield messages


class Reader:
    """A plain client that reads queues."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._found: asyncio.Queue[Received] = asyncio.Queue()
        channel.on_message = self._found.put_nowait

    async def consume(self, queue: str) -> None:
        await self.channel.call(Method.BASIC_CONSUME, 0, queue, "", 2, {})

    async def next(self) -> Received:
        return await asyncio.wait_for(self._found.get(), 10)

    async def read(self, queue: str, count: int = 1) -> list[Received]:
        await self.consume(queue)
        return [await self.next() for _ in range(count)]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Connection, Reader]]:
    """A plain client."""
    connection = await connect(parse_url(url), "test")
    try:
        yield connection, Reader(await connection.channel())
    finally:
        await connection.close()
