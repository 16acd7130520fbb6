"""Forget what ended long ago, a little at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rune.history.asking import Conditions
from rune.history.database import Database, Statement

__all__ = ["Retention", "forget"]

_AT_A_TIME = 100
"""Executions that are forgotten together."""
_ROWS = 2_000
"""Rows that one transaction deletes at most."""
_UNUSED = 3600.0
"""Seconds a definition is kept that nothing refers to: somebody may be about to."""

_TABLES = {
    "history_event": "execution_id, first_seq",
    "history_value": "execution_id, hash",
    "history_step": "execution_id, barrier, item_index, step",
    "history_item": "execution_id, barrier, item_index",
    "history_split": "execution_id, barrier",
    "history_node": "execution_id, node_id",
}
# What stands of it is being read, to begin another one with.
_NOT_READ = """NOT EXISTS (SELECT 1 FROM history_execution c WHERE c.parent = history_execution.id
    AND c.status = 'pending' AND c.trigger IN ('redrive', 'fork'))"""
_DEFINITIONS = """DELETE FROM definition WHERE hash IN (
    SELECT hash FROM definition d WHERE used_at < $1
        AND NOT EXISTS (SELECT 1 FROM workflow_version v WHERE v.hash = d.hash)
        AND NOT EXISTS (SELECT 1 FROM history_execution e WHERE e.definition_hash = d.hash)
    LIMIT $2) AND used_at < $1 RETURNING hash"""


async def forget(database: Database, executions: Sequence[str]) -> int:
    """Delete executions that have ended, and all that is known of them; how many there were.

    One of which another is being made by a redrive or a fork is left until that one runs.
    """
    where = Conditions()
    where.one_of("id", list(executions))
    where.add("ended_at IS NOT NULL")
    where.add(_NOT_READ)
    ended = f"SELECT id FROM history_execution WHERE {where}"
    for table, key in _TABLES.items():
        some = f"SELECT {key} FROM {table} WHERE execution_id IN ({ended}) LIMIT {_ROWS}"
        sql = f"DELETE FROM {table} WHERE ({key}) IN ({some}) RETURNING execution_id"
        while len((await database.write(Statement(sql, [where.args])))[0]) == _ROWS:
            pass
    sql = f"DELETE FROM history_execution WHERE {where} RETURNING id"
    (deleted,) = await database.write(Statement(sql, [where.args]))
    return len(deleted)


class Retention:
    """Deletes what is older than it has to be."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def sweep(self, seconds: float) -> int:
        """Forget executions that ended longer ago than this, and definitions nobody uses; how many."""
        before = self._clock() - seconds
        total = 0
        while True:
            rows = await self._database.fetch(
                "SELECT id FROM history_execution WHERE ended_at < $1 ORDER BY ended_at LIMIT $2",
                *(before, _AT_A_TIME),
            )
            forgotten = await forget(self._database, [row["id"] for row in rows])
            total += forgotten
            if len(rows) < _AT_A_TIME or not forgotten:
                break
        unused = Statement(_DEFINITIONS, [(self._clock() - _UNUSED, _ROWS)])
        while len((await self._database.write(unused))[0]) == _ROWS:
            pass
        return total
