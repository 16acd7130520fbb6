"""The table of messages, and the one of those nobody can work on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable

from rune.backends.sqlite.queue import SEQUENCE_BITS, Entry
from rune.core.errors import MessageError
from rune.core.messages import decode_task
from rune.core.ports import DeadLetter

__all__ = ["Messages"]

_PAGE = 512
_PAGE_BYTES = 8 << 20
"""Messages read at a time."""


class Messages:
    """Messages as rows; every method is one statement or two."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock

    def last_sequence(self) -> int:
        """The highest sequence number of any priority."""
        last = 0
        (top,) = self._connection.execute("SELECT max(id) FROM message").fetchone()
        while top is not None:
            priority = top >> SEQUENCE_BITS << SEQUENCE_BITS
            last = max(last, top - priority)
            (top,) = self._connection.execute(
                "SELECT max(id) FROM message WHERE id < ?", (priority,)
            ).fetchone()
        return last

    def insert(self, messages: Iterable[tuple[Entry, bytes]]) -> None:
        """Store new messages, marked as delivered or not."""
        self._connection.executemany(
            "INSERT INTO message (id, retries, delivered, not_before, body) VALUES (?, 0, ?, 0, ?)",
            [(entry.id, entry.marked, body) for entry, body in messages],
        )

    def delete(self, ids: Iterable[int]) -> None:
        """Remove finished messages."""
        self._connection.executemany("DELETE FROM message WHERE id = ?", [(id,) for id in ids])

    def mark(self, ids: Iterable[int], *, delivered: bool) -> None:
        """Note which messages are, or are no longer, in a worker's hands."""
        self._connection.executemany(
            "UPDATE message SET delivered = ? WHERE id = ?", [(delivered, id) for id in ids]
        )

    def postpone(self, id: int, until: float) -> None:
        """Deliver a message again at `until`, one retry older."""
        self._connection.execute(
            "UPDATE message SET retries = retries + 1, delivered = 0, not_before = ? WHERE id = ?",
            (until, id),
        )

    def wake(self, now: float) -> tuple[list[int], float | None]:
        """Let postponed messages come whose time has come; which, and when the next ones do."""
        woken = self._connection.execute(
            "UPDATE message SET not_before = 0 WHERE not_before > 0 AND not_before <= ? RETURNING id", (now,)
        ).fetchall()
        (next,) = self._connection.execute(
            "SELECT min(not_before) FROM message WHERE not_before > 0"
        ).fetchone()
        return [id for (id,) in woken], next

    def page(self, without: Collection[int]) -> tuple[list[Entry], int | None]:
        """The first messages, in order, and the id of the next one after them; the undecodable are buried."""
        entries: list[Entry] = []
        broken: list[tuple[int, str, bytes]] = []
        size = 0
        beyond = None
        found = self._connection.execute(
            "SELECT id, retries, delivered, body FROM message WHERE not_before = 0 ORDER BY id"
        )
        for id, retries, delivered, body in found:
            if id in without:
                continue
            if len(entries) >= _PAGE or size >= _PAGE_BYTES:
                beyond = id
                break
            try:
                entry = Entry(id, decode_task(body), len(body), retries, stored=True)
            except MessageError as error:
                broken.append((id, str(error), body))
                continue
            entry.marked = entry.redelivered = bool(delivered)
            entries.append(entry)
            size += entry.bytes
        found.close()
        for id, reason, body in broken:
            self.bury(id, DeadLetter(reason, body))
        return entries, beyond

    def bury(self, id: int | None, letter: DeadLetter) -> None:
        """Make a message a dead letter."""
        self._connection.execute(
            "INSERT INTO dead_letter (at, reason, node, execution, attempt, body) VALUES (?, ?, ?, ?, ?, ?)",
            (self._clock(), letter.reason, letter.node, letter.execution, letter.attempt, letter.body),
        )
        if id is not None:
            self.delete([id])

    def dead(self, after: int = 0, limit: int = -1) -> list[DeadLetter]:
        """Dead letters behind one, in the order they came."""
        found = self._connection.execute(
            "SELECT reason, body, node, execution, attempt, CAST(id AS TEXT), at FROM dead_letter "
            "WHERE id > ? ORDER BY id LIMIT ?",
            (after, limit),
        )
        return [DeadLetter(*columns) for columns in found]

    def forget(self, letter: int) -> bytes | None:
        """Remove a dead letter; its body."""
        found = self._connection.execute(
            "DELETE FROM dead_letter WHERE id = ? RETURNING body", (letter,)
        ).fetchone()
        return None if found is None else bytes(found[0])

    def count(self) -> int:
        """How many messages there are."""
        return int(self._connection.execute("SELECT count(*) FROM message").fetchone()[0])
