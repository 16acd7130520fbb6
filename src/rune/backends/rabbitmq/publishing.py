"""Publishing: with confirms and until it is safe, or without and perhaps in vain."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from rune.backends.rabbitmq.channel import AmqpError, Channel, Message, Received
from rune.backends.rabbitmq.link import Lane, Link
from rune.backends.rabbitmq.wire import Method
from rune.core.errors import InfrastructureError

__all__ = ["Publisher", "Sender"]

_log = logging.getLogger("rune.rabbitmq")

_CLOSED = "the link to RabbitMQ was closed"


class _Receipt:
    """What one call of `publish` waits for."""

    __slots__ = ("done", "missing")

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirm(self) -> None:
        self.missing -= 1
        if not self.missing and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: InfrastructureError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Publisher:
    """Publishes with confirms.

    What is not confirmed when the connection is lost is published again: at least once. While the broker is
    away, or wants no messages, whoever publishes waits.
    """

    def __init__(self, link: Link) -> None:
        self._waiting: deque[tuple[Message, _Receipt]] = deque()
        self._sent: dict[int, tuple[Message, _Receipt]] = {}
        """By the tag that confirms them, in order."""
        self._tag = self._oldest = 1
        self.published = 0
        """How many messages we were given."""
        self._closed = False
        self._channel: Channel | None = None
        self._lane = Lane(link, self._opened, self._lost)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish, and return when the broker has confirmed all of it."""
        if not messages:
            return
        if self._closed:
            raise InfrastructureError(_CLOSED)
        self.published += len(messages)
        receipt = _Receipt(len(messages))
        self._waiting.extend((message, receipt) for message in messages)
        self._pump()
        await receipt.done

    def close(self) -> None:
        """Publish no more."""
        self._lane.release()
        self._channel = None
        self._closed = True
        self._fail(InfrastructureError(_CLOSED), [*self._sent.values(), *self._waiting])

    @property
    def unconfirmed(self) -> int:
        """Messages that the broker has yet to confirm, or to be sent."""
        return len(self._sent) + len(self._waiting)

    def _pump(self) -> None:
        channel, waiting = self._channel, self._waiting
        while waiting and channel is not None and channel.writable:
            entry = waiting.popleft()
            if not entry[1].done.done():
                self._sent[self._tag] = entry
                self._tag += 1
                channel.publish(entry[0])

    # --- the channel's life ---

    async def _opened(self, channel: Channel) -> None:
        await channel.call(Method.CONFIRM_SELECT, 0)
        channel.on_confirm = self._confirmed
        channel.on_return = self._returned
        channel.on_writable = self._pump
        self._tag = self._oldest = 1
        self._channel = channel
        self._pump()

    def _lost(self, error: AmqpError) -> None:
        self._channel = None
        unconfirmed = list(self._sent.values())
        self._sent.clear()
        if error.code:
            # Something among these cannot be published, so they would be refused again.
            self._fail(error, unconfirmed)
        else:
            self._waiting.extendleft(reversed(unconfirmed))

    # --- what the broker says ---

    def _confirmed(self, tag: int, multiple: bool, ok: bool) -> None:
        if not multiple:
            self._settle(tag, ok)
            return
        for each in range(self._oldest, tag + 1):
            self._settle(each, ok)
        self._oldest = tag + 1

    def _settle(self, tag: int, ok: bool) -> None:
        entry = self._sent.pop(tag, None)
        if entry is None:
            return
        if ok:
            entry[1].confirm()
        else:
            self._fail(
                InfrastructureError(f"RabbitMQ could not take a message for {entry[0].exchange}"), [entry]
            )

    def _returned(self, returned: Received) -> None:
        """No queue takes it. The broker confirms it next, so that it counts as failed by then."""
        for message, receipt in self._sent.values():
            if (message.exchange, message.key, message.body) == (
                returned.source,
                returned.key,
                returned.body,
            ):
                text = f"no queue takes messages to {message.exchange} for '{message.key}': {returned.reason}"
                receipt.fail(InfrastructureError(text))
                return

    def _fail(self, error: InfrastructureError, entries: Sequence[tuple[Message, _Receipt]]) -> None:
        for _, receipt in entries:
            receipt.fail(error)


class Sender:
    """Sends messages that may be lost; while the broker is away it keeps the latest."""

    def __init__(self, link: Link, keep: int = 10_000) -> None:
        self._waiting: deque[Message] = deque(maxlen=keep)
        self._dropping = False
        self._channel: Channel | None = None
        self._lane = Lane(link, self._opened, self._lost)

    def send(self, message: Message) -> None:
        """Send it, if not now then later."""
        channel = self._channel
        if channel is not None and not self._waiting and channel.writable:
            channel.publish(message)
            return
        if len(self._waiting) == self._waiting.maxlen and not self._dropping:
            self._dropping = True
            _log.warning("RabbitMQ is away for too long: the oldest statuses are dropped")
        self._waiting.append(message)
        self._pump()

    def close(self) -> None:
        """Send no more."""
        self._lane.release()
        self._channel = None

    def _pump(self) -> None:
        channel = self._channel
        while self._waiting and channel is not None and channel.writable:
            channel.publish(self._waiting.popleft())

    async def _opened(self, channel: Channel) -> None:
        channel.on_writable = self._pump
        self._channel = channel
        self._dropping = False
        self._pump()

    def _lost(self, error: AmqpError) -> None:
        self._channel = None
