"""What can be seen of an execution in the file, and of the leases in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from rune.core.holding import BarrierOpen, Holding, LeaseHeld, MergeOpen, Standing
from rune.core.operations import Timer
from rune.core.rows import ExecutionRow

__all__ = ["Looking"]

_MISSING = 5
"""Items that are named of those which have not ended."""
_LOOKED = 50_000
"""Items among which they are looked for: a look must not keep others waiting."""
_PAGE = 500
"""Timers that are read at a time."""

_BARRIERS = """
    SELECT b.id, b.parent, CASE t.source WHEN '' THEN b.total END, t.succeeded + t.failed + t.skipped,
           t.failed, t.skipped, t.published,
           b."release"
    FROM barrier b JOIN tally t ON t.execution = b.execution AND t.barrier = b.id
    WHERE b.execution = ? AND t.closed = 0 LIMIT ?
"""
_COUNTS = {
    "timers": "SELECT count(*) FROM timer WHERE execution = ?",
    "barriers": "SELECT count(*) FROM tally WHERE execution = ? AND closed = 0",
    "merges": "SELECT count(*) FROM merge WHERE execution = ? AND state = 'waiting'",
    "parked": "SELECT count(*) FROM parked WHERE execution = ?",
}


class Looking:
    """Reads what is written; whoever calls writes first."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        """See `State.standings`."""
        found = self._connection.execute(
            "SELECT id, buried FROM execution WHERE id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(list(executions)).decode(),),
        )
        return {id: "ended" if buried else "alive" for id, buried in found}

    def holding(self, row: ExecutionRow, leases: Mapping[str, Mapping[str, float]], limit: int) -> Holding:
        """See `State.holding`; the leases are those that stand, by scope and step."""
        counts = {name: self._one(query, row.id) for name, query in _COUNTS.items()}
        held = [LeaseHeld(step, scope, at) for scope, steps in leases.items() for step, at in steps.items()]
        parked = counts.pop("parked")
        live = self._one("SELECT live FROM scope WHERE execution = ? AND key = ''", row.id)
        return Holding(
            live=1 if live is None else live,
            touched=row.touched,
            paused=row.paused,
            ended=row.ending is not None,
            parked=parked,
            leases=tuple(held[:limit]),
            timers=tuple(self._timers(row.id, limit)),
            barriers=tuple(self._barriers(row.id, limit)),
            merges=tuple(self._merges(row.id, limit)),
            counts={"leases": len(held), **counts},
        )

    def timers(self, limit: int) -> list[Timer]:
        """See `State.timers`."""
        found = self._connection.execute(
            "SELECT id, due, task, sleeping, execution FROM timer WHERE due IS NOT NULL ORDER BY due LIMIT ?",
            (limit,),
        )
        return [
            Timer(id, due, task, bool(sleeping), execution) for id, due, task, sleeping, execution in found
        ]

    def undue(self, execution: str, cursor: str) -> tuple[list[Timer], str]:
        """See `State.undue`."""
        found = self._connection.execute(
            "SELECT id, task, sleeping FROM timer WHERE execution = ? AND due IS NULL AND id > ? "
            "ORDER BY id LIMIT ?",
            (execution, cursor, _PAGE),
        ).fetchall()
        timers = [Timer(id, None, task, bool(sleeping), execution) for id, task, sleeping in found]
        return timers, timers[-1].id if len(timers) == _PAGE else ""

    def _one(self, query: str, execution: str) -> Any:
        found = self._connection.execute(query, (execution,)).fetchone()
        return None if found is None else found[0]

    def _timers(self, execution: str, limit: int) -> list[Timer]:
        found = self._connection.execute(
            "SELECT id, due, task, sleeping FROM timer WHERE execution = ? ORDER BY due IS NULL, due LIMIT ?",
            (execution, limit),
        )
        return [Timer(id, due, task, bool(sleeping), execution) for id, due, task, sleeping in found]

    def _barriers(self, execution: str, limit: int) -> list[BarrierOpen]:
        found = self._connection.execute(_BARRIERS, (execution, limit)).fetchall()
        return [
            BarrierOpen(
                id,
                parent,
                total,
                done,
                failed,
                skipped,
                published,
                release,
                self._missing(execution, id, published),
            )
            for id, parent, total, done, failed, skipped, published, release in found
        ]

    def _missing(self, execution: str, barrier: str, published: int) -> tuple[int, ...]:
        """The first items without a slot, if they are among the first."""
        looked = min(published, _LOOKED)
        found = self._connection.execute(
            "SELECT item FROM slot WHERE execution = ? AND barrier = ? AND item < ?",
            (execution, barrier, looked),
        )
        filled = {item for (item,) in found}
        return tuple(islice((item for item in range(looked) if item not in filled), _MISSING))

    def _merges(self, execution: str, limit: int) -> list[MergeOpen]:
        found = self._connection.execute(
            "SELECT id, scope, expected, accounted, live, need FROM merge "
            "WHERE execution = ? AND state = 'waiting' LIMIT ?",
            (execution, limit),
        ).fetchall()
        return [
            MergeOpen(id, scope, expected, accounted, live, need, self._members(execution, id, limit))
            for id, scope, expected, accounted, live, need in found
        ]

    def _members(self, execution: str, merge: str, limit: int) -> tuple[str, ...]:
        found = self._connection.execute(
            "SELECT member FROM arrival WHERE execution = ? AND merge = ? LIMIT ?", (execution, merge, limit)
        )
        return tuple(member for (member,) in found)
