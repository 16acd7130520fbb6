"""Dead letters: messages nobody can work on, with the reason in their headers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rune.backends.rabbitmq.channel import Channel, Message, Received
from rune.backends.rabbitmq.link import Link
from rune.backends.rabbitmq.publishing import Publisher
from rune.backends.rabbitmq.topology import COMPLETION, DEAD, DEAD_LETTERS, EXECUTION, STATUS
from rune.backends.rabbitmq.wire import Method
from rune.core.ids import content_hash
from rune.core.messages import decode_task
from rune.core.ports import DeadLetter

__all__ = ["NONSENSE", "RETRIES", "Letters", "bury", "retries_of"]

NONSENSE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""
RETRIES = "x-retries"
"""The header that counts how often a message was tried again."""
_LONGEST_REASON = 2000
_AT_A_TIME = 100
"""Dead letters that are asked for together."""


class _Names(msgspec.Struct):
    """What can be told of a message that makes no sense otherwise."""

    current_node: Any = ""
    execution_id: Any = ""


def retries_of(message: Received) -> int:
    """How often a message was tried again."""
    return _number(message.headers, RETRIES)


def _number(headers: dict[str, Any], name: str) -> int:
    """A number among headers that anybody may have written."""
    number = headers.get(name)
    return number if isinstance(number, int) and 0 <= number < 2**53 else 0


def _names(body: bytes) -> tuple[str, str]:
    """The node and the execution of a message, where it tells them."""
    try:
        names = msgspec.json.decode(body, type=_Names)
    except NONSENSE:
        names = _Names()
    return str(names.current_node)[:200], str(names.execution_id)[:200]


def bury(message: Received, reason: str) -> Message:
    """The message to publish for one that nobody can work on."""
    node, execution = _names(message.body)
    headers = {
        "reason": reason[:_LONGEST_REASON],
        "node": node,
        "execution": execution,
        "attempt": retries_of(message),
        "queue": message.source,
        "at": round(time.time() * 1000),
    }
    return Message(DEAD_LETTERS, message.key, message.body, message.priority, headers)


def _read(message: Received) -> DeadLetter:
    """The dead letter in a message; one that the broker itself gave up has the broker's reason and time."""
    headers, death = message.headers, _death(message)
    reason = str(headers.get("reason") or death.get("reason") or "unknown")
    at = _number(headers, "at") or _number(death, "time") * 1000
    node, execution = _names(message.body)
    return DeadLetter(
        reason,
        message.body,
        node,
        execution,
        retries_of(message) or _number(headers, "attempt"),
        content_hash(b"%b/%d/" % (reason.encode(), at) + message.body),
        at / 1000,
    )


def _death(message: Received) -> dict[str, Any]:
    """What the broker says of the last time it gave a message up; its rest before a retry is one, too."""
    match message.headers.get("x-death"):
        case [dict() as death, *_]:
            return death
        case _:
            return {}


def _revived(message: Received) -> Message:
    """The message to publish for a dead letter that is to be tried again."""
    queue = str(message.headers.get("queue") or _death(message).get("queue") or EXECUTION)
    exchange = queue if queue in (STATUS, COMPLETION) else EXECUTION
    return Message(exchange, queue, message.body, message.priority)


class Letters:
    """The dead letters, the oldest first.

    A queue can only be read from its front, so that whoever looks for one holds all before it meanwhile.
    """

    def __init__(self, link: Link, publisher: Publisher) -> None:
        self._link = link
        self._publisher = publisher
        self._reading = asyncio.Lock()
        """What one who reads holds, another would not find."""

    async def page(self, after: str, limit: int) -> list[DeadLetter]:
        """See `Broker.letters`; if there is no such letter as `after`, the first ones."""
        page: list[DeadLetter] = []
        behind = not after
        async with self._held() as (_, messages):
            async for message in messages:
                letter = _read(message)
                if letter.id == after:
                    page, behind = page if behind else [], True
                elif len(page) < limit:
                    page.append(letter)
                if behind and len(page) == limit:
                    break
        return page

    async def find(self, id: str) -> DeadLetter | None:
        """See `Broker.letter`."""
        async with self._held() as (_, messages):
            async for message in messages:
                if (letter := _read(message)).id == id:
                    return letter
        return None

    async def settle(self, id: str, *, again: bool) -> bool:
        """Take a dead letter out of its queue, once it is safe in another if it is to be tried again."""
        async with self._held() as (channel, messages):
            async for message in messages:
                if _read(message).id == id:
                    if again:
                        await self._revive(message)
                    channel.send(Method.BASIC_ACK, message.tag, 0)
                    return True
        return False

    async def _revive(self, message: Received) -> None:
        revival = _revived(message)
        if revival.exchange == EXECUTION:
            decode_task(message.body)
        await self._publisher.publish([revival])

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[tuple[Channel, AsyncIterator[Received]]]:
        """Dead letters, in our hands as they are read; those not acknowledged go back to their place."""
        async with self._reading:
            channel = await (await self._link.connection()).channel()
            try:
                yield channel, _walk(channel)
            finally:
                await channel.hand_back()


async def _walk(channel: Channel) -> AsyncIterator[Received]:
    while True:
        for message in await asyncio.gather(*(channel.get(DEAD) for _ in range(_AT_A_TIME))):
            if message is None:
                return
            yield message
