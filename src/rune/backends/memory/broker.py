"""A priority queue of Tasks, and lists for everything else."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, decode_task, encode
from rune.core.ports import DeadLetter, Delivery

__all__ = ["MemoryBroker"]


class MemoryBroker:
    """A priority queue, and lists for everything else."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._queue: list[tuple[int, int, Task, int, bool]] = []
        self._order = itertools.count()
        self._taken: dict[int, tuple[int, int, Task, int, bool]] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._completed: asyncio.Queue[CompletionMessage] = asyncio.Queue()
        self._clock = clock
        self.dead: list[DeadLetter] = []
        self.listeners: list[Callable[[Sequence[NodeStatusMessage]], None]] = []

    @property
    def listened(self) -> bool:
        return bool(self.listeners)

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        for task in tasks:
            heapq.heappush(self._queue, (-task.priority, next(self._order), task, 0, False))
        for completion in completions:
            self._completed.put_nowait(completion)
        self._wake()

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        await self.publish(tasks)
        self._taken.pop(delivery.tag, None)
        self._wake()

    async def retry(self, delivery: Delivery, delay: float) -> None:
        entry = self._taken.pop(delivery.tag, None)
        if entry is None:
            return
        again = (entry[0], entry[1], entry[2], entry[3] + 1, False)
        loop = asyncio.get_running_loop()
        loop.call_later(delay, self._put, again)
        self._wake()

    def _put(self, entry: tuple[int, int, Task, int, bool]) -> None:
        heapq.heappush(self._queue, entry)
        self._wake()

    async def give_back(self, delivery: Delivery) -> None:
        entry = self._taken.pop(delivery.tag, None)
        if entry is not None:
            self._put((*entry[:4], False))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        entry = self._taken.pop(delivery.tag, None)
        if entry is None:
            return
        _, _, task, retries, _ = entry
        id, at = str(next(self._order)), self._clock()
        letter = DeadLetter(reason, encode(task), task.current_node, task.execution_id, retries, id, at)
        self.dead.append(letter)
        self._wake()

    async def letters(self, after: str, limit: int) -> list[DeadLetter]:
        behind = [letter for letter in self.dead if not after.isdecimal() or int(letter.id) > int(after)]
        return behind[:limit]

    async def letter(self, id: str) -> DeadLetter | None:
        return next((dead for dead in self.dead if dead.id == id), None)

    async def redrive(self, letter: str) -> bool:
        found = await self.letter(letter)
        if found is None:
            return False
        await self.publish([decode_task(found.body)])
        return await self.drop(letter)

    async def drop(self, letter: str) -> bool:
        kept = [dead for dead in self.dead if dead.id != letter]
        dropped, self.dead = len(kept) < len(self.dead), kept
        return dropped

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        for listener in self.listeners:
            listener(statuses)

    async def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        while True:
            while not self._queue or len(self._taken) >= prefetch:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            entry = heapq.heappop(self._queue)
            tag = next(self._order)
            self._taken[tag] = entry
            yield Delivery(tag, entry[2], entry[4], entry[3])

    async def completions(self) -> AsyncIterator[CompletionMessage]:
        while True:
            yield await self._completed.get()

    async def completed(self, completion: CompletionMessage) -> None:
        return None

    async def depth(self) -> int:
        """How many Tasks wait or are being handled."""
        return len(self._queue) + len(self._taken)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
