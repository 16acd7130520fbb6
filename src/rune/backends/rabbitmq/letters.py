"""Dead letters: messages nobody can work on, with the reason in their headers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from rune.backends.rabbitmq.channel import Message, Received
from rune.backends.rabbitmq.connection import Connection
from rune.backends.rabbitmq.declaring import PASSIVE
from rune.backends.rabbitmq.topology import DEAD, DEAD_LETTERS
from rune.backends.rabbitmq.wire import Method
from rune.core.ports import DeadLetter

__all__ = ["NONSENSE", "RETRIES", "bury", "peek", "retries_of"]

NONSENSE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""
RETRIES = "x-retries"
"""The header that counts how often a message was tried again."""
_LONGEST_REASON = 2000


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
    }
    return Message(DEAD_LETTERS, message.key, message.body, message.priority, headers)


def read(message: Received) -> DeadLetter:
    """The dead letter in a message; one that the broker itself gave up has the broker's reason."""
    headers = message.headers
    reason = headers.get("reason") or headers.get("x-first-death-reason") or "unknown"
    return DeadLetter(
        str(reason),
        message.body,
        str(headers.get("node", "")),
        str(headers.get("execution", "")),
        retries_of(message) or int(headers.get("attempt", 0)),
    )


async def peek(connection: Connection, limit: int) -> list[DeadLetter]:
    """The first dead letters, which stay where they are."""
    channel = await connection.channel()
    try:
        found: asyncio.Queue[Received] = asyncio.Queue()
        channel.on_message = found.put_nowait
        _, waiting, _ = await channel.call(Method.QUEUE_DECLARE, 0, DEAD, PASSIVE, {})
        count = min(waiting, limit)
        await channel.call(Method.BASIC_QOS, 0, count, 0)
        if count:
            await channel.call(Method.BASIC_CONSUME, 0, DEAD, "", 0, {})
        return [read(await found.get()) for _ in range(count)]
    finally:
        channel.close()
