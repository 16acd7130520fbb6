"""The messages that come next, in memory; however many there are, the rest stays in the database."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from rune.core.messages import Task

__all__ = ["SEQUENCE_BITS", "Entry", "Queue", "order"]

SEQUENCE_BITS = 48
_PRIORITIES = 1 << 14
_MOST = 2048
_MOST_BYTES = 16 << 20
"""What may wait in memory."""
_NOTHING_BEYOND = 1 << 63
_EVERYTHING_BEYOND = -(1 << 63)


def order(priority: int, sequence: int) -> int:
    """The id of a message: ids in their order are the order of delivery."""
    clamped = max(-_PRIORITIES, min(_PRIORITIES - 1, priority))
    return (-clamped << SEQUENCE_BITS) + sequence


class Entry:
    """A message that has not been finished."""

    __slots__ = ("bytes", "id", "marked", "redelivered", "retries", "stored", "task")

    def __init__(self, id: int, task: Task, size: int, retries: int = 0, *, stored: bool = False) -> None:
        self.id = id
        self.task = task
        self.bytes = size
        self.retries = retries
        self.stored = stored
        """It is in the database, not only about to be."""
        self.marked = False
        """There, it counts as delivered."""
        self.redelivered = False

    def __lt__(self, other: Entry) -> bool:
        return self.id < other.id


class Queue:
    """Three stages: ready, then marked as delivered in the database, then taken by a worker.

    `beyond` is the first id from which on there may be messages that only the database knows.
    """

    def __init__(self) -> None:
        self.ready: list[Entry] = []
        self.marked: list[Entry] = []
        self.taken: dict[int, Entry] = {}
        self.beyond = _EVERYTHING_BEYOND
        self._bytes = 0

    @property
    def waits(self) -> bool:
        """Whether a message could be marked, here or in the database."""
        return bool(self.ready) or self.beyond < _NOTHING_BEYOND

    @property
    def stale(self) -> bool:
        """Whether the next message must be looked for in the database."""
        return self.beyond < _NOTHING_BEYOND and (not self.ready or self.ready[0].id >= self.beyond)

    def add(self, entry: Entry) -> None:
        """Let a message wait: here if there is room, else in the database alone."""
        if entry.id >= self.beyond:
            return
        if len(self.ready) < _MOST and self._bytes < _MOST_BYTES:
            heapq.heappush(self.ready, entry)
            self._bytes += entry.bytes
        else:
            self.beyond = entry.id

    def look_again(self, id: int) -> None:
        """The database has this message, and perhaps it is not here."""
        self.beyond = min(self.beyond, id)

    def reset(self) -> None:
        """Only the database knows what is ready."""
        self.reload((), _EVERYTHING_BEYOND)

    def reload(self, entries: Iterable[Entry], beyond: int | None) -> None:
        """These, in order, are what the database has; `beyond` comes next there."""
        self.ready = list(entries)
        self._bytes = sum(entry.bytes for entry in self.ready)
        self.beyond = _NOTHING_BEYOND if beyond is None else beyond

    def pop(self) -> Entry:
        """The first that is ready."""
        entry = heapq.heappop(self.ready)
        self._bytes -= entry.bytes
        return entry

    def mark(self, entries: Iterable[Entry]) -> None:
        """These are marked for good."""
        for entry in entries:
            heapq.heappush(self.marked, entry)

    def next(self) -> Entry | None:
        """The next one to hand out, unless one that comes before it has yet to be marked."""
        if not self.marked:
            return None
        first = self.marked[0].id
        if first > self.beyond or (self.ready and first > self.ready[0].id):
            return None
        return heapq.heappop(self.marked)
