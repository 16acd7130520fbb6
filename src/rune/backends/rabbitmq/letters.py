"""Dead letters: messages nobody can work on, with the reason in their headers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rune.backends.rabbitmq.channel import Channel, Message, Received
from rune.backends.rabbitmq.connection import Connection
from rune.backends.rabbitmq.declaring import PASSIVE
from rune.backends.rabbitmq.topology import COMPLETION, DEAD, DEAD_LETTERS, EXECUTION, STATUS
from rune.backends.rabbitmq.wire import Method
from rune.core.ids import content_hash
from rune.core.ports import DeadLetter

__all__ = ["NONSENSE", "RETRIES", "bury", "held", "peek", "read", "retries_of", "revived"]

NONSENSE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""
RETRIES = "x-retries"
"""The header that counts how often a message was tried again."""
_LONGEST_REASON = 2000
_PATIENCE = 5.0
"""Seconds in which dead letters that are there arrive."""


class _Names(msgspec.Struct):
    """What can be told of a message that makes no sense otherwise."""

    current_node: Any = ""
    execution_id: Any = ""


def retries_of(message: Received) -> int:
    """How often a message was tried again."""
    retries = message.headers.get(RETRIES, 0)
    return retries if isinstance(retries, int) and retries >= 0 else 0


def bury(message: Received, reason: str) -> Message:
    """The message to publish for one that nobody can work on."""
    try:
        names = msgspec.json.decode(message.body, type=_Names)
    except NONSENSE:
        names = _Names()
    headers = {
        "reason": reason[:_LONGEST_REASON],
        "node": str(names.current_node)[:200],
        "execution": str(names.execution_id)[:200],
        "attempt": retries_of(message),
        "queue": message.source,
        "at": round(time.time() * 1000),
    }
    return Message(DEAD_LETTERS, message.key, message.body, message.priority, headers)


def read(message: Received) -> DeadLetter:
    """The dead letter in a message; one that the broker itself gave up has the broker's reason."""
    headers = message.headers
    reason = headers.get("reason") or headers.get("x-first-death-reason") or "unknown"
    at = headers.get("at", 0)
    return DeadLetter(
        str(reason),
        message.body,
        str(headers.get("node", "")),
        str(headers.get("execution", "")),
        retries_of(message) or int(headers.get("attempt", 0)),
        content_hash(b"%b/%d/" % (str(reason).encode(), at) + message.body),
        at / 1000,
    )


def revived(message: Received) -> Message:
    """The message to publish for a dead letter that is to be tried again."""
    headers = message.headers
    queue = str(headers.get("queue") or headers.get("x-first-death-queue") or EXECUTION)
    exchange = queue if queue in (STATUS, COMPLETION) else EXECUTION
    return Message(exchange, queue, message.body, message.priority)


async def peek(connection: Connection, limit: int) -> list[DeadLetter]:
    """The first dead letters, which stay where they are."""
    async with held(connection, limit) as (_, messages):
        return [read(message) for message in messages]


@asynccontextmanager
async def held(connection: Connection, limit: int) -> AsyncIterator[tuple[Channel, list[Received]]]:
    """The first dead letters, in our hands meanwhile; those not acknowledged go back to their place."""
    channel = await connection.channel()
    try:
        found: asyncio.Queue[Received] = asyncio.Queue()
        channel.on_message = found.put_nowait
        _, waiting, _ = await channel.call(Method.QUEUE_DECLARE, 0, DEAD, PASSIVE, {})
        count = min(waiting, limit)
        await channel.call(Method.BASIC_QOS, 0, count, 0)
        if count:
            await channel.call(Method.BASIC_CONSUME, 0, DEAD, "", 0, {})
        messages: list[Received] = []
        try:
            async with asyncio.timeout(_PATIENCE):
                while len(messages) < count:
                    messages.append(await found.get())
        except TimeoutError:
            # Somebody else holds the others.
            pass
        yield channel, messages
    finally:
        channel.close()
