"""One AMQP channel: calls, messages in, messages out, confirms."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from rune.backends.rabbitmq.wire import (
    BODY,
    HEADER,
    METHOD,
    Method,
    decode,
    decode_delivery,
    decode_properties,
    encode,
    encode_content,
    frame,
)
from rune.core.errors import InfrastructureError

__all__ = [
    "ACCESS_REFUSED",
    "NOT_FOUND",
    "PRECONDITION_FAILED",
    "AmqpError",
    "Channel",
    "Message",
    "Received",
    "Wire",
]

ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED = 403, 404, 406
_MULTIPLE, _REQUEUE = 1, 2


class AmqpError(InfrastructureError):
    """The broker closed a channel or a connection, or cannot be reached."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Message(Struct, frozen=True):
    """A message to publish."""

    exchange: str
    key: str
    body: bytes
    priority: int = 0
    headers: Mapping[str, Any] | None = None
    persistent: bool = True
    mandatory: bool = True


class Received(Struct, eq=False):
    """A message that a consumer was given, or that was returned to its publisher."""

    channel: Channel
    source: str
    """The consumer's tag, empty if it was asked for; of a returned message, the exchange."""
    key: str
    tag: int = 0
    redelivered: bool = False
    reason: str = ""
    """Why it was returned."""
    priority: int = 0
    headers: dict[str, Any] = {}
    body: bytes = b""


class Wire(Protocol):
    """What a channel needs of its connection."""

    frame_max: int

    def send(self, data: bytes) -> None:
        """Write soon."""

    def forget(self, number: int) -> None:
        """A channel is closed on both sides."""

    @property
    def writable(self) -> bool:
        """Whether messages may be written now."""


class Channel:
    """A channel; it is of no more use once `closed` is done."""

    def __init__(self, wire: Wire, number: int) -> None:
        self._wire = wire
        self._number = number
        self._calls: deque[asyncio.Future[list[Any]]] = deque()
        self._incoming: Received | None = None
        self._missing = 0
        self._parts: list[bytes] = []
        self.closed: asyncio.Future[AmqpError] = asyncio.get_running_loop().create_future()
        self.on_message: Callable[[Received], None] = lambda message: None
        self.on_return: Callable[[Received], None] = lambda message: None
        self.on_confirm: Callable[[int, bool, bool], None] = lambda tag, multiple, ok: None
        """Called with the tag, whether it stands for all before it, and whether the broker took it."""
        self.on_writable: Callable[[], None] = lambda: None
        """Called when messages may be written again."""

    # --- out ---

    async def call(self, method: Method, *arguments: Any) -> list[Any]:
        """Send a method and wait for its answer."""
        if self.closed.done():
            raise self.closed.result()
        reply: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._calls.append(reply)
        self.send(method, *arguments)
        return await reply

    async def get(self, queue: str) -> Received | None:
        """The next message of a queue, if one waits there."""
        (message,) = await self.call(Method.BASIC_GET, 0, queue, 0)
        return message if isinstance(message, Received) else None

    def send(self, method: Method, *arguments: Any) -> None:
        """Send a method that has no answer."""
        if not self.closed.done():
            self._wire.send(frame(METHOD, self._number, encode(method, *arguments)))

    @property
    def writable(self) -> bool:
        """Whether messages may be written now; others wait for `on_writable`."""
        return self._wire.writable

    def publish(self, message: Message) -> None:
        """Send a message."""
        self._wire.send(
            encode_content(
                self._number,
                message.exchange,
                message.key,
                message.body,
                self._wire.frame_max,
                priority=message.priority,
                headers=message.headers,
                persistent=message.persistent,
                mandatory=message.mandatory,
            )
        )

    def close(self, reason: str = "the channel was closed") -> None:
        """Close it; what it was given and did not settle goes back to the queues, soon."""
        if not self.closed.done():
            self.send(Method.CHANNEL_CLOSE, 200, "", 0, 0)
            self.fail(AmqpError(reason))

    async def hand_back(self) -> None:
        """Close it, and return when what it was given and did not settle is back in the queues."""
        try:
            # Queues that are replicated notice a closed channel later than a word.
            self.send(Method.BASIC_NACK, 0, _MULTIPLE | _REQUEUE)
            await self.call(Method.CHANNEL_CLOSE, 200, "", 0, 0)
            self._wire.forget(self._number)
        finally:
            self.fail(AmqpError("the channel was closed"))

    # --- in ---

    def receive(self, kind: int, payload: bytes) -> None:
        """Take a frame."""
        if kind == METHOD:
            method = int.from_bytes(payload[:4])
            if not self.closed.done():
                self._receive_method(method, payload)
            elif method == Method.CHANNEL_CLOSE:
                self._wire.send(frame(METHOD, self._number, encode(Method.CHANNEL_CLOSE_OK)))
            elif method == Method.CHANNEL_CLOSE_OK:
                self._wire.forget(self._number)
        elif self._incoming is not None and kind == HEADER:
            message = self._incoming
            self._missing, message.priority, message.headers = decode_properties(payload)
            if not self._missing:
                self._complete(message)
        elif self._incoming is not None and kind == BODY:
            self._missing -= len(payload)
            if self._missing > 0:
                self._parts.append(payload)
            elif self._parts:
                self._incoming.body = b"".join((*self._parts, payload))
                self._parts.clear()
                self._complete(self._incoming)
            else:
                self._incoming.body = payload
                self._complete(self._incoming)

    def _complete(self, message: Received) -> None:
        self._incoming = None
        if not message.tag:
            self.on_return(message)
        elif message.source:
            self.on_message(message)
        else:
            self._answer([message])

    def _answer(self, answer: list[Any]) -> None:
        if self._calls and not (reply := self._calls.popleft()).done():
            reply.set_result(answer)

    def _receive_method(self, method: int, payload: bytes) -> None:
        match method:
            case Method.BASIC_DELIVER:
                source, tag, redelivered, key = decode_delivery(payload)
                self._incoming = Received(self, source, key, tag, redelivered)
            case Method.BASIC_GET_OK:
                tag, redelivered, _, key, _ = decode(method, payload)
                self._incoming = Received(self, "", key, tag, bool(redelivered))
            case Method.BASIC_ACK | Method.BASIC_NACK:
                tag, bits = decode(method, payload)
                self.on_confirm(tag, bool(bits & 1), method == Method.BASIC_ACK)
            case Method.BASIC_RETURN:
                _, reason, exchange, key = decode(method, payload)
                self._incoming = Received(self, exchange, key, reason=reason)
            case Method.CHANNEL_CLOSE:
                code, text, _, _ = decode(method, payload)
                self.send(Method.CHANNEL_CLOSE_OK)
                self.fail(AmqpError(text, code))
                self._wire.forget(self._number)
            case Method.BASIC_CANCEL:
                self.close("a queue was deleted")
            case _:
                self._answer(decode(method, payload))

    def fail(self, error: AmqpError) -> None:
        """It is closed: everybody who waits hears why."""
        if not self.closed.done():
            self.closed.set_result(error)
        while self._calls:
            reply = self._calls.popleft()
            if not reply.done():
                reply.set_exception(error)
