"""The ledger's rows in SQLite, the hot ones also in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.backends.sqlite.barriers import Barriers
from rune.backends.sqlite.table import Table
from rune.backends.sqlite.tables import (
    arrivals,
    end_row,
    ends,
    executions,
    merges,
    refills,
    scopes,
    settled,
    slots,
    steps,
)
from rune.backends.sqlite.timers import Timers
from rune.core.operations import Timer
from rune.core.rows import BarrierRow, EndRow, ExecutionRow, MergeRow, Refill, ScopeRow, StepRow

__all__ = ["SqliteRows"]

_SMALL = 20_000
_LARGE = 2_000
"""Rows kept in memory between transactions: of the small ones, and of those that carry a Task."""

_OF_SCOPE = (
    "DELETE FROM scope WHERE execution = ?1 AND key = ?2",
    "DELETE FROM settled WHERE execution = ?1 AND scope = ?2",
    "DELETE FROM branch_end WHERE execution = ?1 AND scope = ?2",
    "DELETE FROM step WHERE execution = ?1 AND scope = ?2 AND scope <> ''",
    """DELETE FROM arrival WHERE execution = ?1
       AND merge IN (SELECT id FROM merge WHERE execution = ?1 AND scope = ?2 AND scope <> '')""",
    "DELETE FROM merge WHERE execution = ?1 AND scope = ?2 AND scope <> ''",
)
_OF_BARRIER = (
    "DELETE FROM slot WHERE execution = ? AND barrier = ?",
    "DELETE FROM refill WHERE execution = ? AND barrier = ?",
    "DELETE FROM tally WHERE execution = ? AND barrier = ?",
    "DELETE FROM barrier WHERE execution = ? AND id = ?",
)
_OF_EXECUTION = (
    "scope",
    "settled",
    "branch_end",
    "step",
    "barrier",
    "tally",
    "slot",
    "refill",
    "merge",
    "arrival",
    "timer",
    "parked",
    "variable",
)
_SET = """INSERT INTO variable (execution, name, data, turn) VALUES (?, ?, ?, ?)
    ON CONFLICT (execution, name) DO UPDATE SET data = excluded.data, turn = excluded.turn
    WHERE excluded.turn > variable.turn"""
_TURN = "SELECT coalesce(max(turn), 0) FROM variable WHERE execution = ?"


class SqliteRows:
    """Write-back rows, and a part of the transaction.

    Rows of a scope or an execution that has ended may linger in memory after they are gone from the file: the
    ledger's gate lets nobody ask for them, and what else reads, reads the file.
    """

    def __init__(self, connection: sqlite3.Connection, timers: Timers) -> None:
        self._connection = connection
        self._timers = timers
        self._executions = executions(connection, keep=_SMALL)
        self._scopes = scopes(connection, keep=_SMALL)
        self._merges = merges(connection, keep=_SMALL)
        self._barriers = Barriers(connection, keep=_LARGE)
        self._steps = steps(connection, self._leased_until)
        self._settled = settled(connection)
        self._ends = ends(connection)
        self._slots = slots(connection)
        self._refills = refills(connection)
        self._arrivals = arrivals(connection)
        self._tables: tuple[Table[Any] | Barriers, ...] = (
            self._executions,
            self._scopes,
            self._merges,
            self._barriers,
            self._steps,
            self._settled,
            self._ends,
            self._slots,
            self._refills,
            self._arrivals,
        )
        self._ended: list[tuple[str, str]] = []
        """Scopes that ended in this transaction."""
        self._leases: dict[str, dict[str, dict[str, float]]] = {}
        """Until when steps are leased, by execution and scope."""
        self._leasing: list[tuple[str, str, StepRow]] = []
        """Steps whose lease may have changed in this transaction."""

    # --- executions and scopes -----------------------------------------------------------------------------

    def execution(self, execution: str) -> ExecutionRow | None:
        return self._executions.get(execution)

    def save_execution(self, row: ExecutionRow) -> None:
        self._executions.put(row, row.id)

    def scope(self, execution: str, key: str) -> ScopeRow | None:
        return self._scopes.get(execution, key)

    def save_scope(self, execution: str, key: str, row: ScopeRow) -> None:
        self._scopes.put(row, execution, key)

    def forget_scope(self, execution: str, key: str) -> None:
        # Nothing is keyed to a scope that has no row: most items of a fan-out.
        if self._scopes.get(execution, key) is not None:
            self._scopes.drop(execution, key)
            self._leases.get(execution, {}).pop(key, None)
            self._ended.append((execution, key))

    def settled(self, execution: str, key: str, step: str) -> bool:
        return self._settled.get(execution, key, step) is not None

    def add_settled(self, execution: str, key: str, step: str) -> None:
        self._settled.put(True, execution, key, step)

    def ends(self, execution: str, key: str) -> list[EndRow]:
        self._ends.write()
        found = self._connection.execute(
            "SELECT path, node, data, folds FROM branch_end WHERE execution = ? AND scope = ?",
            (execution, key),
        )
        return [end_row(None, columns) for columns in found]

    def add_end(self, execution: str, key: str, step: str, row: EndRow) -> None:
        self._ends.put(row, execution, key, step)

    # --- steps ---------------------------------------------------------------------------------------------

    def step(self, execution: str, step: str) -> StepRow | None:
        return self._steps.get(execution, step)

    def save_step(self, execution: str, step: str, row: StepRow) -> None:
        self._steps.put(row, execution, step)
        self._leasing.append((execution, step, row))

    def _leased_until(self, execution: str, scope: str, step: str) -> float:
        return self._leases.get(execution, {}).get(scope, {}).get(step, 0.0)

    def renew(self, execution: str, step: str, fence: int, until: float) -> bool:
        """Keep a lease: it is in memory only, so this is no transaction."""
        self.write()
        row = self._steps.read(execution, step)
        if row is None or row.fence != fence or row.record is not None:
            return False
        self._lease(execution, step, row.scope, until)
        return True

    def leases(self, execution: str, now: float) -> dict[str, dict[str, float]]:
        """Until when steps of an execution are leased, by scope."""
        scopes = self._leases.get(execution, {}).items()
        standing = {scope: {s: at for s, at in steps.items() if at > now} for scope, steps in scopes}
        return {scope: steps for scope, steps in standing.items() if steps}

    def _lease(self, execution: str, step: str, scope: str, until: float) -> None:
        self._leases.setdefault(execution, {}).setdefault(scope, {})[step] = until

    def _end_lease(self, execution: str, step: str, scope: str) -> None:
        scopes = self._leases.get(execution)
        steps = scopes.get(scope) if scopes else None
        if scopes and steps and steps.pop(step, None) and not steps:
            del scopes[scope]

    # --- fan-outs and merges -------------------------------------------------------------------------------

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        return self._barriers.get(execution, barrier)

    def save_barrier(self, execution: str, row: BarrierRow, *, whole: bool = False) -> None:
        self._barriers.put(execution, row, whole=whole)

    def set_variables(self, execution: str, variables: Sequence[tuple[str, bytes]]) -> int:
        (last,) = self._connection.execute(_TURN, (execution,)).fetchone()
        self.sow_variables(execution, variables, last + 1)
        return int(last) + 1

    def sow_variables(self, execution: str, variables: Sequence[tuple[str, bytes]], turn: int) -> None:
        self._connection.executemany(_SET, [(execution, name, data, turn) for name, data in variables])

    def foresee(self, execution: str, barrier: str, items: Sequence[int]) -> None:
        # Two queries for the whole batch instead of two for each item.
        first, last = min(items), max(items)
        if last - first > 4 * len(items):
            return
        filled = self._connection.execute(
            "SELECT item FROM slot WHERE execution = ? AND barrier = ? AND item BETWEEN ? AND ?",
            (execution, barrier, first, last),
        )
        missing = set(items).difference(item for (item,) in filled)
        self._slots.absent((execution, barrier, item) for item in missing)
        keys = [f"{barrier}.{item}" for item in items]
        known = self._connection.execute(
            "SELECT key FROM scope WHERE execution = ? AND key IN (SELECT value FROM json_each(?))",
            (execution, msgspec.json.encode(keys).decode()),
        )
        self._scopes.absent((execution, key) for key in set(keys).difference(key for (key,) in known))

    def has_slot(self, execution: str, barrier: str, item: int) -> bool:
        return self._slots.get(execution, barrier, item) is not None

    def add_slot(self, execution: str, barrier: str, item: int, data: bytes | None) -> None:
        self._slots.put((data,), execution, barrier, item)

    def refill(self, execution: str, barrier: str, step: str) -> Refill | None:
        return self._refills.get(execution, barrier, step)

    def add_refill(self, execution: str, barrier: str, step: str, refill: Refill) -> None:
        self._refills.put(refill, execution, barrier, step)

    def merge(self, execution: str, merge: str) -> MergeRow | None:
        return self._merges.get(execution, merge)

    def save_merge(self, execution: str, row: MergeRow) -> None:
        self._merges.put(row, execution, row.id)

    def has_arrival(self, execution: str, merge: str, member: str) -> bool:
        return self._arrivals.get(execution, merge, member) is not None

    def add_arrival(self, execution: str, merge: str, member: str, order: int, payload: bytes | None) -> None:
        self._arrivals.put((order, payload), execution, merge, member)

    # --- timers --------------------------------------------------------------------------------------------

    def arm(self, execution: str, timer: Timer, *, replace: bool = False) -> None:
        self._timers.arm(execution, timer, replace=replace)

    def disarm(self, execution: str, timer: str) -> None:
        self._timers.disarm(execution, timer)

    def resting(self, execution: str, now: float) -> float | None:
        leases = {
            step: until for steps in self._leases.get(execution, {}).values() for step, until in steps.items()
        }
        leases |= {step: row.leased_until for at, step, row in self._leasing if at == execution}
        asleep = self._timers.asleep(execution)
        if asleep is None and not any(until > now for until in leases.values()):
            return None
        return max(now, asleep or now)

    # --- what else reads, reads the file -------------------------------------------------------------------

    def stored_barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        """A barrier, unless its scope has ended."""
        self.write()
        return self._barriers.read(execution, barrier)

    def stored_merge(self, execution: str, merge: str) -> MergeRow | None:
        """A merge, unless its scope has ended."""
        self.write()
        return self._merges.read(execution, merge)

    # --- endings -------------------------------------------------------------------------------------------

    def bury(self, row: ExecutionRow, keep: str, until: float) -> None:
        """Leave only a tombstone, and the values whose hashes are in the JSON list `keep`."""
        self.save_execution(row)
        self.write()
        self._leases.pop(row.id, None)
        for table in _OF_EXECUTION:
            self._connection.execute(f"DELETE FROM {table} WHERE execution = ?", (row.id,))
        self._connection.execute(
            "DELETE FROM value WHERE execution = ? AND hash NOT IN (SELECT value FROM json_each(?))",
            (row.id, keep),
        )
        self._connection.execute("UPDATE execution SET until = ? WHERE id = ?", (until, row.id))

    def purge(self, now: float, limit: int) -> None:
        """Remove tombstones whose time has passed, with the values kept beside them; -1 is without limit."""
        found = self._connection.execute(
            "SELECT id FROM execution WHERE buried = 1 AND until <= ? ORDER BY until LIMIT ?", (now, limit)
        ).fetchall()
        if found:
            self._connection.executemany("DELETE FROM value WHERE execution = ?", found)
            self._connection.executemany("DELETE FROM execution WHERE id = ?", found)
            for (execution,) in found:
                self._executions.drop(execution)

    def _erase(self, scopes: list[tuple[str, str]]) -> None:
        """Delete all that is keyed to these scopes."""
        barriers: list[tuple[str, str]] = []
        for execution, scope in scopes:
            for (barrier,) in self._connection.execute(
                "SELECT id FROM barrier WHERE execution = ? AND parent = ? AND parent <> ''",
                (execution, scope),
            ).fetchall():
                barriers.append((execution, barrier))
                # Items that were left behind when the barrier closed early; the loop comes to them, too.
                inner = self._connection.execute(
                    "SELECT key FROM scope WHERE execution = ? AND key > ? AND key < ?",
                    (execution, f"{barrier}.", f"{barrier}/"),
                )
                scopes += [(execution, key) for (key,) in inner]
        for statement in _OF_SCOPE:
            self._connection.executemany(statement, scopes)
        if barriers:
            for statement in _OF_BARRIER:
                self._connection.executemany(statement, barriers)

    # --- a part of the transaction -------------------------------------------------------------------------

    def write(self) -> None:
        """Write what has changed; then delete what belongs to scopes that have ended, changed or not."""
        for table in self._tables:
            if table.changed:
                table.write()
        if self._ended:
            ended, self._ended = self._ended, []
            self._erase(ended)

    def prepare(self) -> None:
        self.write()

    def committed(self) -> None:
        for execution, step, row in self._leasing:
            if row.leased_until:
                self._lease(execution, step, row.scope, row.leased_until)
            else:
                self._end_lease(execution, step, row.scope)
        self._leasing.clear()
        for table in self._tables:
            if table.known:
                table.trim()
        self._timers.committed()

    def rolled_back(self) -> None:
        self._ended.clear()
        self._leasing.clear()
        for table in self._tables:
            table.clear()
        self._timers.rolled_back()
