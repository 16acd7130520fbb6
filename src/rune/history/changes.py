"""What has changed in an execution since a certain `seq`: the tail of the history, for those who watch."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct

from rune.core.errors import ErrorInfo
from rune.history.database import Database, Row
from rune.history.executions import Executions, NodeCounts, Status
from rune.history.items import Items, Run, Split

__all__ = ["Changes", "Head", "Reading"]


class Head(Struct, frozen=True, kw_only=True):
    """How an execution stands as a whole, without what went in and came out."""

    id: str
    status: Status
    started_at: float | None
    ended_at: float | None
    duration_ms: int | None
    error: ErrorInfo | None
    reason: str | None
    seq: int


class Reading(Struct):
    """What has changed, as it is now."""

    head: Head
    """Everything up to its `seq` has been read; what changed meanwhile may be among it, too."""
    nodes: dict[str, NodeCounts] = {}
    splits: dict[str, Split] = {}
    items: dict[str, Sequence[Run]] = {}
    """Of the splits that were asked for."""


class Changes:
    """Reads what has changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._executions = Executions(database)
        self._items = Items(database)

    async def knows(self, execution: str) -> bool:
        """Whether there is such an execution."""
        return await self._database.fetch_one(_KNOWN, execution) is not None

    async def read(self, execution: str, since: int, scopes: Collection[str]) -> Reading | None:
        """What has changed since, of items only those of the splits `scopes`; None: no such execution.

        The number is read first: whatever has one up to it is committed, and found by what is read next.
        """
        row = await self._database.fetch_one(_HEAD, execution)
        if row is None:
            return None
        head = _head(row)
        if head.seq <= since:
            return Reading(head)
        nodes = await self._executions.nodes(execution, after_seq=since)
        splits = await self._items.splits(execution, after_seq=since, around=list(scopes))
        items = {scope: await self._items.runs(execution, scope, after_seq=since) for scope in scopes}
        return Reading(head, nodes, {split.barrier: split for split in splits}, items)

    async def items(self, execution: str, scope: str) -> tuple[Sequence[Split], Sequence[Run]]:
        """All items of one split, and the splits around and inside of it."""
        splits = await self._items.splits(execution, around=[scope])
        return splits, await self._items.runs(execution, scope)


def _head(row: Row) -> Head:
    values = {name: row[name] for name in Head.__struct_fields__}
    error = values["error"]
    values["error"] = msgspec.json.decode(error, type=ErrorInfo) if error is not None else None
    return Head(**values)


_KNOWN = "SELECT 1 AS known FROM history_execution WHERE id = $1"
_HEAD = """
SELECT id, status, started_at, ended_at, duration_ms, error, reason, seq FROM history_execution WHERE id = $1
"""
