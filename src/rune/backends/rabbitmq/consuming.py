"""Consuming: messages in the order of their priority, acknowledged in bulk."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence

from rune.backends.rabbitmq.channel import AmqpError, Channel, Received
from rune.backends.rabbitmq.declaring import PASSIVE
from rune.backends.rabbitmq.link import Lane, Link
from rune.backends.rabbitmq.wire import Method

__all__ = ["Consumer"]

_NO_ACK = _REQUEUE = 2
_MOST = 65_535


class Consumer:
    """Takes messages from queues, at most `prefetch` unsettled ones at a time.

    Those of a channel that was lost are the broker's again: settling them has no effect.
    """

    def __init__(
        self,
        link: Link,
        queues: Sequence[str],
        prefetch: int,
        *,
        prepare: Callable[[Channel], Awaitable[None]] | None = None,
        no_ack: bool = False,
    ) -> None:
        self._queues = queues
        self._prefetch = min(prefetch, _MOST)
        self._prepare = prepare
        self._no_ack = no_ack
        self._place = 0
        """The next one's in the order of arrival."""
        self._ready: list[tuple[int, int, Received]] = []
        self._moved = asyncio.Event()
        self._channel: Channel | None = None
        self._taken: dict[int, int] = {}
        """The tags in somebody's hands, with the place each had in the order."""
        self._stopped = False
        self._floor = 0
        """All tags up to this one are settled."""
        self._settled: set[int] = set()
        self._unsent: list[int] = []
        self._lane = Lane(link, self._opened, self._lost)

    # --- taking ---

    async def take(self) -> Received:
        """The next message."""
        while not self._ready or len(self._taken) >= self._prefetch:
            self._moved.clear()
            await self._moved.wait()
        return self._pop()

    def take_ready(self) -> list[Received]:
        """All that are here already."""
        return [self._pop() for _ in range(min(len(self._ready), self._prefetch - len(self._taken)))]

    def _pop(self) -> Received:
        _, place, message = heapq.heappop(self._ready)
        if not self._no_ack:
            self._taken[message.tag] = place
        return message

    @property
    def mark(self) -> int:
        """Tells what has come by now from what comes later."""
        return self._place

    def put_back(self, message: Received) -> bool:
        """Put a message back to its place among those to come; False if nobody takes from there."""
        if self._stopped:
            return False
        if self.holds(message):
            heapq.heappush(self._ready, (-message.priority, self._taken.pop(message.tag), message))
            self._moved.set()
        return True

    async def surplus(self, mark: int, limit: int) -> list[Received]:
        """Take what has waited since `mark` if others find nothing in its queue, and since `limit` if not."""
        queues = {message.source for _, place, message in self._ready if place < mark}
        hungry = [queue for queue in queues if await self._others_wait(queue)]
        ready, self._ready = self._ready, []
        found: list[Received] = []
        for entry in ready:
            _, place, message = entry
            if place < limit or (place < mark and message.source in hungry):
                self._taken[message.tag] = place
                found.append(message)
            else:
                heapq.heappush(self._ready, entry)
        return found

    async def _others_wait(self, queue: str) -> bool:
        if self._channel is None:
            return False
        _, ready, consumers = await self._channel.call(Method.QUEUE_DECLARE, 0, queue, PASSIVE, {})
        return bool(ready == 0 and consumers > 1)

    async def stop(self) -> list[Received]:
        """Take no more: what was not taken; the rest can still be settled."""
        self._lane.release()
        channel = self._channel
        if channel is not None:
            try:
                for queue in self._queues:
                    await channel.call(Method.BASIC_CANCEL, queue, 0)
            except AmqpError as error:
                self._lost(error)
        self._stopped = True
        left = [message for _, _, message in sorted(self._ready)]
        self._taken.update((message.tag, 0) for message in left)
        self._ready.clear()
        self._close_if_done()
        return left

    def close(self) -> None:
        """Take no more; what is not settled is the broker's again."""
        self._acknowledge()
        self._lane.release()
        if self._channel is not None:
            self._channel.close()

    # --- settling ---

    def holds(self, message: Received) -> bool:
        """Whether a message is still to be settled here."""
        return message.channel is self._channel and message.tag in self._taken

    def requeue(self, message: Received) -> None:
        """Give a message back to the broker, who will deliver it as redelivered."""
        if self.holds(message) and self._channel is not None:
            del self._taken[message.tag]
            self._settled.add(message.tag)
            self._channel.send(Method.BASIC_NACK, message.tag, _REQUEUE)
            self._moved.set()
            self._close_if_done()

    def settle(self, message: Received) -> None:
        """Acknowledge a message."""
        if not self.holds(message):
            return
        del self._taken[message.tag]
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._acknowledge)
        self._unsent.append(message.tag)
        self._moved.set()

    def _acknowledge(self) -> None:
        """Acknowledge what was settled in this turn of the loop: as many as possible with one method."""
        channel, unsent = self._channel, self._unsent
        if channel is None or not unsent:
            return
        settled, floor = self._settled, self._floor
        settled.update(unsent)
        while floor + 1 in settled:
            floor += 1
            settled.remove(floor)
        self._floor = floor
        bulk = [tag for tag in unsent if tag <= floor]
        if bulk:
            channel.send(Method.BASIC_ACK, max(bulk), int(len(bulk) > 1))
        for tag in unsent:
            if tag > floor:
                channel.send(Method.BASIC_ACK, tag, 0)
        self._unsent = []
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._stopped and not self._taken and not self._unsent and self._channel is not None:
            self._channel.close()
            self._channel = None

    # --- the channel's life ---

    async def _opened(self, channel: Channel) -> None:
        channel.on_message = self._deliver
        if self._prepare is not None:
            await self._prepare(channel)
        self._floor = 0
        self._channel = channel
        await channel.call(Method.BASIC_QOS, 0, self._prefetch, 0)
        for queue in self._queues:
            await channel.call(Method.BASIC_CONSUME, 0, queue, queue, _NO_ACK if self._no_ack else 0, {})

    def _deliver(self, message: Received) -> None:
        heapq.heappush(self._ready, (-message.priority, self._place, message))
        self._place += 1
        if len(self._ready) == 1:
            self._moved.set()

    def _lost(self, error: AmqpError) -> None:
        self._channel = None
        self._ready.clear()
        self._taken.clear()
        self._settled.clear()
        self._unsent.clear()
        self._moved.set()
