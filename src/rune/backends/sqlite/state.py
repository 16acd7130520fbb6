"""State in SQLite: the ledger, on rows that are committed in groups."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rune.backends.sqlite.database import Database
from rune.backends.sqlite.looking import Looking
from rune.backends.sqlite.rows import SqliteRows
from rune.backends.sqlite.timers import Timers
from rune.core.holding import Holding, Standing
from rune.core.ids import CHILD
from rune.core.ledger import Ledger
from rune.core.operations import Answer, Arrival, BarrierView, Commit, Lease, MergeView, Place, Seed, Timer
from rune.core.rows import ExecutionRow

__all__ = ["SqliteState"]

_PURGED = 10
"""Old tombstones that each new one takes along."""
_ALL = -1
_LATELY = 10_000
"""Endings that are still news."""

_UNSTARTED = f"""
    SELECT id FROM execution
    WHERE buried = 0
      AND substr(id, 1, {len(CHILD)}) <> '{CHILD}' -- whoever calls it starts it again
      AND id NOT IN (SELECT execution FROM timer)
      AND id NOT IN (SELECT execution FROM parked)
      AND id NOT IN (SELECT coalesce(json_extract(CAST(body AS TEXT), '$.execution_id'), '')
                     FROM message WHERE json_valid(CAST(body AS TEXT)))
"""


class SqliteState:
    """State in one SQLite file."""

    epoch = ""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self.database = self._database = database
        """Open to others, whose tables then share this file and its transactions."""
        self._connection: sqlite3.Connection = database.connection
        self._clock = clock
        self._timers = Timers(database.connection)
        self._rows = SqliteRows(database.connection, self._timers)
        self._ledger = Ledger(self._rows, clock)
        self._looking = Looking(database.connection)
        self._leaving: dict[str, int] = {}
        """The last parked Task of each execution that goes on, until they have been published."""
        database.join(self._rows)

    async def restore(self) -> None:
        """Take over from a process that is no more."""
        await self._database.run(self._restore)

    def _restore(self) -> None:
        self._timers.restore()
        self._rows.purge(self._clock(), _ALL)

    async def forget_unstarted(self) -> None:
        """Forget executions that nothing moves on: their start was cut off before its first message."""
        await self._database.run(self._forget_unstarted)

    def _forget_unstarted(self) -> None:
        for id in self._ids(_UNSTARTED):
            self._rows.bury(ExecutionRow(id, buried=True), "[]", self._clock())
        self._rows.purge(self._clock(), _ALL)

    async def check(self) -> bool:
        """The file is ours alone: nobody empties it."""
        return True

    # --- steps ---------------------------------------------------------------------------------------------

    async def apply(self, execution: str, commits: Sequence[Commit]) -> list[Answer]:
        return await self._database.run(lambda: self._ledger.apply(execution, commits))

    async def seed(self, execution: str, seeds: Sequence[Seed]) -> None:
        await self._database.run(lambda: self._ledger.seed(execution, seeds))

    async def lease(
        self, execution: str, steps: Sequence[tuple[str, Place]], attempt: int, until: float
    ) -> list[Lease]:
        return await self._database.run(lambda: self._ledger.lease(execution, steps, attempt, until))

    async def renew(self, execution: str, step: str, fence: int, until: float) -> bool:
        return await self._database.read(lambda: self._rows.renew(execution, step, fence, until))

    async def give_back(self, execution: str, steps: Sequence[tuple[str, int]]) -> None:
        await self._database.run(lambda: self._give_back(execution, steps))

    def _give_back(self, execution: str, steps: Sequence[tuple[str, int]]) -> None:
        for step, fence in steps:
            row = self._rows.step(execution, step)
            if row is not None and row.fence == fence and row.record is None:
                row.fence -= 1
                row.leased_until = 0.0
                self._rows.save_step(execution, step, row)

    # --- values --------------------------------------------------------------------------------------------

    async def put(self, execution: str, values: Mapping[str, bytes]) -> None:
        await self._database.run(lambda: self._put(execution, values))

    def _put(self, execution: str, values: Mapping[str, bytes]) -> None:
        if not self._ledger.takes(execution):
            return
        self._known(execution)
        self._connection.executemany(
            "INSERT INTO value (execution, hash, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(execution, hash, data) for hash, data in values.items()],
        )

    def _known(self, execution: str) -> ExecutionRow:
        """An execution's row, from the first time that anything is kept for it."""
        row = self._rows.execution(execution)
        if row is None:
            row = ExecutionRow(execution)
            self._rows.save_execution(row)
        return row

    async def get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        return await self._database.read(lambda: self._get(execution, hashes))

    def _get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for hash in hashes:
            row = self._connection.execute(
                "SELECT data FROM value WHERE execution = ? AND hash = ?", (execution, hash)
            ).fetchone()
            if row is not None:
                found[hash] = row[0]
        return found

    async def variables(self, execution: str) -> dict[str, bytes]:
        return await self._database.read(lambda: self._variables(execution))

    def _variables(self, execution: str) -> dict[str, bytes]:
        return dict(
            self._connection.execute("SELECT name, data FROM variable WHERE execution = ?", (execution,))
        )

    # --- joins ---------------------------------------------------------------------------------------------

    async def barrier(self, execution: str, barrier: str) -> BarrierView | None:
        row = await self._database.read(lambda: self._rows.stored_barrier(execution, barrier))
        return row.view() if row else None

    async def slots(self, execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
        return await self._database.read(lambda: self._slots(execution, barrier, start, limit))

    def _slots(self, execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
        self._rows.write()
        return self._connection.execute(
            "SELECT item, data FROM slot "
            "WHERE execution = ? AND barrier = ? AND item >= ? AND item < ? AND data IS NOT NULL "
            "ORDER BY item",
            (execution, barrier, start, start + limit),
        ).fetchall()

    async def merge(self, execution: str, merge: str) -> MergeView | None:
        return await self._database.read(lambda: self._merge(execution, merge))

    def _merge(self, execution: str, merge: str) -> MergeView | None:
        row = self._rows.stored_merge(execution, merge)
        if row is None or row.state in ("waiting", "dead"):
            return None
        found = self._connection.execute(
            "SELECT place, member, payload FROM arrival "
            "WHERE execution = ? AND merge = ? AND payload IS NOT NULL",
            (execution, merge),
        )
        arrivals = [Arrival(*columns) for columns in found]
        failed = row.state if row.state != "open" else ""
        return MergeView(arrivals, failed, row.expected, row.winner if row.need is not None else "")

    # --- executions ----------------------------------------------------------------------------------------

    async def bury(self, execution: str, keep: Iterable[str], until: float) -> None:
        hashes = msgspec.json.encode(list(keep)).decode()
        await self._database.run(lambda: self._bury(execution, hashes, until))

    def _bury(self, execution: str, keep: str, until: float) -> None:
        row = self._known(execution)
        tomb = msgspec.structs.replace(row, buried=True, ending=None, paused=False)
        self._rows.bury(tomb, keep, until)
        self._rows.purge(self._clock(), _PURGED)

    async def park(self, execution: str, step: str, task: bytes) -> bool:
        return await self._database.run(lambda: self._park(execution, step, task))

    def _park(self, execution: str, step: str, task: bytes) -> bool:
        row = self._rows.execution(execution)
        if row is None or not row.paused:
            return False
        self._connection.execute(
            "INSERT OR REPLACE INTO parked (execution, step, task) VALUES (?, ?, ?)", (execution, step, task)
        )
        return True

    async def pause(self, execution: str) -> bool:
        return await self._database.run(lambda: self._pause(execution))

    def _pause(self, execution: str) -> bool:
        row = self._rows.execution(execution)
        if row is None:
            return False
        row.paused = not (row.buried or row.ending)
        self._rows.save_execution(row)
        return row.paused

    async def unpause(self, execution: str) -> list[bytes]:
        return await self._database.run(lambda: self._unpause(execution))

    def _unpause(self, execution: str) -> list[bytes]:
        row = self._rows.execution(execution)
        if row is None:
            return []
        row.paused = False
        self._rows.save_execution(row)
        found = self._connection.execute(
            "SELECT rowid, task FROM parked WHERE execution = ? ORDER BY rowid", (execution,)
        ).fetchall()
        if found:
            self._leaving[execution] = found[-1][0]
        return [task for _, task in found]

    async def unparked(self, execution: str) -> None:
        # What is parked when it is paused again before these are published has a higher number.
        last = self._leaving.pop(execution, 0)
        await self._database.run(
            lambda: self._connection.execute(
                "DELETE FROM parked WHERE execution = ? AND rowid <= ?", (execution, last)
            )
        )

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        return await self._database.read(
            lambda: (
                frozenset(
                    self._ids(
                        "SELECT id FROM execution WHERE buried = 1 ORDER BY until DESC LIMIT ?", _LATELY
                    )
                ),
                frozenset(self._ids("SELECT id FROM execution WHERE paused = 1")),
            )
        )

    async def live(self) -> list[str]:
        return await self._database.read(
            lambda: self._ids("SELECT id FROM execution WHERE buried = 0 ORDER BY number")
        )

    def _ids(self, query: str, *parameters: object) -> list[str]:
        # As a read may share a transaction with others' changes, those come first.
        self._rows.write()
        return [id for (id,) in self._connection.execute(query, parameters)]

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        return await self._database.read(lambda: self._standings(executions))

    def _standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        self._rows.write()
        return self._looking.standings(executions)

    async def holding(self, execution: str, limit: int) -> Holding | None:
        return await self._database.read(lambda: self._holding(execution, limit))

    def _holding(self, execution: str, limit: int) -> Holding | None:
        self._rows.write()
        row = self._rows.execution(execution)
        if row is None or row.buried:
            return None
        return self._looking.holding(row, self._rows.leases(execution, self._clock()), limit)

    # --- timers --------------------------------------------------------------------------------------------

    async def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        return await self._database.run(lambda: self._timers.claim(now, limit, until))

    async def discharge(self, timers: Sequence[Timer]) -> None:
        await self._database.run(lambda: self._discharge(timers))

    def _discharge(self, timers: Sequence[Timer]) -> None:
        self._ledger.woken(timers)
        self._timers.discharge(timers)

    async def timer(self, execution: str, id: str) -> Timer | None:
        return await self._database.read(lambda: self._timers.find(execution, id))

    async def wake(self, execution: str, timer: str, task: bytes, due: float) -> bool:
        return await self._database.run(lambda: self._timers.wake(execution, timer, task, due))

    async def undue(self, execution: str, cursor: str) -> tuple[list[Timer], str]:
        return await self._database.read(lambda: self._looking.undue(execution, cursor))

    async def timers(self, limit: int) -> list[Timer]:
        return await self._database.read(lambda: self._looking.timers(limit))

    async def next_due(self) -> float | None:
        return await self._database.read(self._timers.next_due)

    async def armed(self, timeout: float | None) -> None:
        await self._timers.armed(timeout)
