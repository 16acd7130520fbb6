"""The Broker in SQLite: messages and completions as rows, what comes next also in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from rune.backends.sqlite.completions import Completions
from rune.backends.sqlite.database import Database
from rune.backends.sqlite.messages import Messages
from rune.backends.sqlite.queue import Entry, Queue, order
from rune.backends.sqlite.signal import Signal
from rune.core.errors import InfrastructureError
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, decode_task, encode
from rune.core.ports import DeadLetter, Delivery

__all__ = ["SqliteBroker"]

_LONGEST_SLEEP = 60.0
"""Seconds after which the clock is looked at again: it may be set while we sleep."""
_ANY_TIME = float("-inf")
_NEVER = float("inf")


class SqliteBroker:
    """A Broker in one SQLite file, and a part of its transactions.

    A delivery is marked in the file before it is handed out, so that a Task that kills its process is known
    for it. This costs no transaction of its own: the one that publishes a message, or finishes another, marks
    what there is room for.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._messages = Messages(database.connection, clock)
        self._completions = Completions(database, self._messages)
        self._queue = Queue()
        self._sequence = itertools.count(1)
        self._tags = itertools.count(1)
        self._consumers: list[int] = []
        """The prefetch of each."""
        self._moved = Signal()
        self._wake_at = _ANY_TIME
        """When the next postponed message comes; at first it is not known."""
        self._alarm: asyncio.TimerHandle | None = None
        self.listeners: list[Callable[[Sequence[NodeStatusMessage]], None]] = []
        # What the transaction does; memory follows when it is committed.
        self._new: list[tuple[Entry, bytes]] = []
        self._returning: list[Entry] = []
        self._leaving: dict[int, Entry] = {}
        self._finished: list[int] = []
        self._marking: list[Entry] = []
        self._wanted = False
        database.join(self)

    async def restore(self) -> None:
        """Go on where a process before this one has ended."""
        last = await self._database.run(self._messages.last_sequence)
        self._sequence = itertools.count(last + 1)

    async def close(self) -> None:
        """Whatever is marked and was not handed out counts as never taken."""
        if self._alarm is not None:
            self._alarm.cancel()
        waiting = [entry.id for entry in self._queue.marked if not entry.redelivered]
        with suppress(InfrastructureError):
            await self._database.run(lambda: self._messages.mark(waiting, delivered=False))

    # --- messages ------------------------------------------------------------------------------------------

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        if tasks or completions:
            await self._database.run(lambda: self._publish(tasks, completions))

    def _publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        for task in tasks:
            body = encode(task)
            self._new.append((Entry(order(task.priority, next(self._sequence)), task, len(body)), body))
        self._completions.publish(completions)

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        await self._database.run(lambda: self._finish(delivery, tasks))

    def _finish(self, delivery: Delivery, tasks: Sequence[Task]) -> None:
        self._publish(tasks)
        entry = self._leave(delivery)
        if entry is not None:
            self._finished.append(entry.id)

    def _leave(self, delivery: Delivery) -> Entry | None:
        """Take a delivery from its worker; None if it has been."""
        entry = self._queue.taken.get(delivery.tag)
        if entry is None or delivery.tag in self._leaving:
            return None
        self._leaving[delivery.tag] = entry
        return entry

    async def retry(self, delivery: Delivery, delay: float) -> None:
        await self._database.run(lambda: self._retry(delivery, delay))

    def _retry(self, delivery: Delivery, delay: float) -> None:
        entry = self._leave(delivery)
        if entry is not None:
            self._messages.postpone(entry.id, self._clock() + delay)
            self._wake_at = _ANY_TIME

    async def give_back(self, delivery: Delivery) -> None:
        await self._database.run(lambda: self._give_back(delivery))

    def _give_back(self, delivery: Delivery) -> None:
        entry = self._leave(delivery)
        if entry is not None:
            self._messages.mark([entry.id], delivered=False)
            self._returning.append(Entry(entry.id, entry.task, entry.bytes, entry.retries, stored=True))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await self._database.run(lambda: self._dead_letter(delivery, reason))

    def _dead_letter(self, delivery: Delivery, reason: str) -> None:
        entry = self._leave(delivery)
        if entry is not None:
            task = entry.task
            letter = DeadLetter(reason, encode(task), task.current_node, task.execution_id, entry.retries)
            self._messages.bury(entry.id, letter)

    @property
    def dead(self) -> list[DeadLetter]:
        """The dead letters."""
        return self._messages.dead()

    async def letters(self, after: str, limit: int) -> list[DeadLetter]:
        return await self._database.read(lambda: self._messages.dead(_number(after), limit))

    async def letter(self, id: str) -> DeadLetter | None:
        return await self._database.read(lambda: self._letter(_number(id)))

    def _letter(self, number: int) -> DeadLetter | None:
        found = self._messages.dead(number - 1, 1)
        return found[0] if found and found[0].id == str(number) else None

    async def redrive(self, letter: str) -> bool:
        return await self._database.run(lambda: self._redrive(_number(letter)))

    def _redrive(self, letter: int) -> bool:
        found = self._letter(letter)
        if found is None:
            return False
        self._publish([decode_task(found.body)])
        return self._messages.forget(letter) is not None

    async def drop(self, letter: str) -> bool:
        return await self._database.run(lambda: self._messages.forget(_number(letter)) is not None)

    async def depth(self) -> int:
        """How many Tasks wait or are being handled."""
        return await self._database.run(self._messages.count)

    async def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        self._consumers.append(prefetch)
        taken = self._queue.taken
        try:
            while True:
                entry = self._queue.next() if len(taken) < prefetch else None
                if entry is not None:
                    tag = next(self._tags)
                    taken[tag] = entry
                    yield Delivery(tag, entry.task, entry.redelivered, entry.retries)
                elif len(taken) < prefetch and (self._queue.waits or self._wake_at <= self._clock()):
                    await self._database.run(self._want)
                else:
                    await self._moved.wait()
        finally:
            self._consumers.remove(prefetch)

    def _want(self) -> None:
        """Have this transaction mark messages though none comes or goes."""
        self._wanted = True

    # --- statuses and completions --------------------------------------------------------------------------

    @property
    def listened(self) -> bool:
        return bool(self.listeners)

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        for listener in self.listeners:
            listener(statuses)

    def completions(self) -> AsyncIterator[CompletionMessage]:
        return self._completions.all()

    async def completed(self, completion: CompletionMessage) -> None:
        await self._completions.forget(completion)

    # --- a part of the transaction -------------------------------------------------------------------------

    def prepare(self) -> None:
        if not (self._new or self._leaving or self._wanted):
            return
        if self._finished:
            self._messages.delete(self._finished)
        if self._wake_at <= self._clock():
            self._wake_postponed()
        for entry in self._returning:
            self._queue.add(entry)
        for entry, _ in self._new:
            self._queue.add(entry)
        self._mark()
        self._insert()

    def _wake_postponed(self) -> None:
        woken, next = self._messages.wake(self._clock())
        self._wake_at = _NEVER if next is None else next
        for id in woken:
            self._queue.look_again(id)

    def _mark(self) -> None:
        """Mark what comes next, as much as there is room for with those who take deliveries."""
        queue = self._queue
        unfinished = len(queue.taken) - len(self._leaving) + len(queue.marked)
        room = max(self._consumers, default=0) - unfinished
        # One that comes before all that are marked is marked in any case.
        first = queue.marked[0].id if queue.marked else _ANY_TIME
        old: list[int] = []
        while True:
            if queue.stale and (room > 0 or queue.beyond < first):
                self._reload()
            if not queue.ready or (room <= 0 and queue.ready[0].id > first):
                break
            entry = queue.pop()
            if entry.stored and not entry.marked:
                old.append(entry.id)
            entry.marked = True
            self._marking.append(entry)
            first = min(first, entry.id)
            room -= 1
        if old:
            self._messages.mark(old, delivered=True)

    def _insert(self) -> None:
        messages = [message for message in self._new if not message[0].stored]
        if messages:
            self._messages.insert(messages)
            for entry, _ in messages:
                entry.stored = True

    def _reload(self) -> None:
        self._insert()
        queue = self._queue
        elsewhere = {entry.id for tag, entry in queue.taken.items() if tag not in self._leaving}
        elsewhere.update(entry.id for entry in queue.marked)
        elsewhere.update(entry.id for entry in self._marking)
        queue.reload(*self._messages.page(elsewhere))

    def committed(self) -> None:
        self._completions.committed()
        if not (self._new or self._leaving or self._wanted):
            return
        for tag in self._leaving:
            del self._queue.taken[tag]
        self._queue.mark(self._marking)
        if self._leaving or self._marking:
            self._moved.send()
        self._forget_transaction()
        self._set_alarm()

    def rolled_back(self) -> None:
        self._forget_transaction()
        # Memory has moved on from what the file says.
        self._queue.reset()
        self._wake_at = _ANY_TIME

    def _forget_transaction(self) -> None:
        self._new.clear()
        self._returning.clear()
        self._leaving.clear()
        self._finished.clear()
        self._marking.clear()
        self._wanted = False

    # --- postponed messages --------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if _ANY_TIME < self._wake_at < _NEVER:
            delay = min(_LONGEST_SLEEP, self._wake_at - self._clock())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        """Let a consumer see whether the time has come."""
        self._alarm = None
        self._moved.send()
        if self._wake_at > self._clock():
            self._set_alarm()


def _number(letter: str) -> int:
    """A dead letter's number; 0, which none has, for what is no number."""
    return int(letter) if letter.isdecimal() and len(letter) < 19 else 0
