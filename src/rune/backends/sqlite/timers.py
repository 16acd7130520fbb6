"""Timers in the database, found by the time they are due."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

from rune.core.operations import Timer

__all__ = ["Timers"]

_NEVER = float("inf")
_REPLACE = """UPDATE SET
    due = excluded.due, unclaimed = NULL, sleeping = excluded.sleeping, task = excluded.task"""


class Timers:
    """Arms, claims and discharges; only what is committed wakes anyone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._earlier = asyncio.Event()
        self._told = _NEVER
        """What `next_due` said last: whoever sleeps, sleeps until then."""
        self._soonest = _NEVER
        """Of those armed in this transaction."""

    def restore(self) -> None:
        """Void the claims of a process that is no more."""
        self._connection.execute(
            "UPDATE timer SET due = unclaimed, unclaimed = NULL WHERE unclaimed IS NOT NULL"
        )

    def arm(self, execution: str, timer: Timer, *, replace: bool) -> None:
        """Arm a timer; one of its id that stands is left alone, or replaced."""
        done = self._connection.execute(
            f"INSERT INTO timer (execution, id, due, sleeping, task) VALUES (?, ?, ?, ?, ?) "
            f"ON CONFLICT (execution, id) DO {_REPLACE if replace else 'NOTHING'}",
            (execution, timer.id, timer.due, timer.sleeping, timer.task),
        )
        if done.rowcount and timer.due is not None:
            self._soonest = min(self._soonest, timer.due)

    def disarm(self, execution: str, timer: str) -> None:
        """Remove a timer."""
        self._connection.execute("DELETE FROM timer WHERE execution = ? AND id = ?", (execution, timer))

    def asleep(self, execution: str) -> float | None:
        """When the last branch of the execution that rests in a timer wakes; infinity if nobody knows."""
        (until,) = self._connection.execute(
            "SELECT max(coalesce(due, ?)) FROM timer WHERE execution = ? AND sleeping", (_NEVER, execution)
        ).fetchone()
        return None if until is None else float(until)

    def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        """See `State.claim`."""
        found = self._connection.execute(
            "SELECT execution, id, task, sleeping, coalesce(unclaimed, due) FROM timer "
            "WHERE due <= ? ORDER BY due LIMIT ?",
            (now, limit),
        ).fetchall()
        self._connection.executemany(
            "UPDATE timer SET unclaimed = coalesce(unclaimed, due), due = ? WHERE execution = ? AND id = ?",
            [(until, execution, id) for execution, id, *_ in found],
        )
        return [
            Timer(id, until, task, bool(sleeping), execution, was_due)
            for execution, id, task, sleeping, was_due in found
        ]

    def discharge(self, timers: Sequence[Timer]) -> None:
        """See `State.discharge`: one that was armed anew in the meantime stays."""
        self._connection.executemany(
            "DELETE FROM timer WHERE execution = ? AND id = ? AND due IS ?",
            [(timer.execution, timer.id, timer.due) for timer in timers],
        )

    def find(self, execution: str, timer: str) -> Timer | None:
        """See `State.release`."""
        found = self._connection.execute(
            "SELECT due, task, sleeping FROM timer WHERE execution = ? AND id = ?", (execution, timer)
        ).fetchone()
        return None if found is None else Timer(timer, found[0], found[1], bool(found[2]), execution)

    def wake(self, execution: str, timer: str, task: bytes, due: float) -> bool:
        """See `State.wake`."""
        done = self._connection.execute(
            "UPDATE timer SET due = ?, task = ? WHERE execution = ? AND id = ? AND due IS NULL",
            (due, task, execution, timer),
        )
        if done.rowcount:
            self._soonest = min(self._soonest, due)
            return True
        found = self.find(execution, timer)
        return found is not None and found.task == task

    def next_due(self) -> float | None:
        """See `State.next_due`."""
        # From here on, whatever is armed to come earlier ends the sleep that follows.
        self._earlier.clear()
        (due,) = self._connection.execute("SELECT min(due) FROM timer WHERE due IS NOT NULL").fetchone()
        self._told = _NEVER if due is None else due
        return None if due is None else float(due)

    async def armed(self, timeout: float | None) -> None:
        """See `State.armed`."""
        try:
            await asyncio.wait_for(self._earlier.wait(), timeout)
        except TimeoutError:
            return

    def committed(self) -> None:
        """Wake the sleeper if it would now sleep too long."""
        if self._soonest < self._told:
            self._earlier.set()
        self._soonest = _NEVER

    def rolled_back(self) -> None:
        """Nothing was armed."""
        self._soonest = _NEVER
