"""Splits and their items: counts by state, runs of equal states, failures in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from rune.core.errors import ErrorInfo
from rune.history.asking import Conditions
from rune.history.database import Database, Row, as_dict
from rune.history.paging import Page, after, paged

__all__ = ["Failures", "Item", "ItemState", "Items", "Run", "Split"]

ItemState = Literal["pending", "running", "succeeded", "failed", "skipped"]
Run = tuple[int, ItemState, int]
"""First item, state, how many."""


class Split(Struct, frozen=True, kw_only=True):
    """A fan-out, and how many of its items are in each state."""

    barrier: str
    node: str
    scope: str | None
    """The barrier of the item around it."""
    scope_item: int | None
    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    skipped: int
    closed: bool
    seq: int


class Item(Struct, frozen=True, kw_only=True):
    """One item of a split."""

    index: int
    state: ItemState
    label: str = ""
    key: str = ""
    error_code: str | None = None
    error_node: str | None = None
    seq: int = 0


class Failures(Struct, frozen=True, kw_only=True):
    """Items that failed in the same way."""

    node: str
    code: str
    count: int
    example: int
    """The first of these items."""
    error: ErrorInfo | None = None
    """What went wrong with it."""


Splits = list[Split]

_SPLIT = """SELECT s.*, e.ended_at FROM history_split s JOIN history_execution e ON e.id = s.execution_id
    WHERE s.execution_id = $1 AND s.node_id <> ''"""
_GAP = 10_000
"""Items that are looked at in one query for the ones nobody has heard of."""


class Items:
    """Reads splits and items; an item that has no row is pending, or skipped once its split has closed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- splits ---

    async def splits(
        self,
        execution: str,
        *,
        after_seq: int = -1,
        scope: tuple[str, int] | None = None,
        around: Sequence[str] | None = None,
        limit: int = 1000,
    ) -> Splits:
        """The splits of an execution, or those in one item, that changed after `after_seq`.

        `around` are barriers: only splits of the execution itself, these, and those in their items.
        """
        where = Conditions()
        where.add("s.execution_id = ?", execution)
        where.add("s.seq > ?", after_seq)
        if scope is not None:
            where.add("s.scope = ? AND s.scope_item = ?", *scope)
        if around is not None:
            among = ", ".join(map(where.arg, ["", *around]))
            where.add(f"(s.scope IN ({among}) OR s.barrier IN ({among}))")
        sql = f"""{_SPLIT} AND {where} ORDER BY s.scope, s.scope_item, s.node_id, s.barrier
            LIMIT {where.arg(limit)}"""
        return [_split(row) for row in await self._database.fetch(sql, *where.args)]

    async def split(self, execution: str, barrier: str) -> Split | None:
        """One split."""
        row = await self._database.fetch_one(f"{_SPLIT} AND s.barrier = $2", execution, barrier)
        return _split(row) if row else None

    # --- items ---

    async def get(self, execution: str, barrier: str, index: int) -> Item | None:
        """One item; None if the split has no such item."""
        split = await self.split(execution, barrier)
        if split is None or not 0 <= index < split.total:
            return None
        row = await self._database.fetch_one(
            "SELECT * FROM history_item WHERE execution_id = $1 AND barrier = $2 AND item_index = $3",
            *(execution, barrier, index),
        )
        return _item(row) if row else Item(index=index, state=_unheard(split))

    async def list(
        self,
        execution: str,
        barrier: str,
        *,
        state: Sequence[ItemState] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Item]:
        """A split's items in their order, or those in some states; also those nobody has heard of."""
        split = await self.split(execution, barrier)
        if split is None:
            return Page([])
        (start,) = after(cursor, int) if cursor is not None else (-1,)
        start += 1
        wanted = set(state) or {"pending", "running", "succeeded", "failed", "skipped"}
        if _unheard(split) not in wanted or not split.total:
            found = await self._rows(execution, barrier, start, list(wanted), limit + 1)
            return paged(found, limit, lambda item: (item.index,))
        several: dict[int, Item] = {}
        while start < split.total and len(several) <= limit:
            stop = min(split.total, start + _GAP)
            rows = await self._rows(execution, barrier, start, [], _GAP)
            heard = {item.index: item for item in rows}
            for index in range(start, stop):
                item = heard.get(index) or Item(index=index, state=_unheard(split))
                if item.state in wanted:
                    several[index] = item
                if len(several) > limit:
                    break
            start = stop
        return paged([*several.values()], limit, lambda item: (item.index,))

    async def runs(self, execution: str, barrier: str, *, after_seq: int = -1) -> Sequence[Run]:
        """The states of a split's items as runs; after a `seq`, only of items that have changed since."""
        split = await self.split(execution, barrier)
        if split is None:
            return []
        rows = await self._database.fetch(
            """SELECT item_index, state FROM history_item
            WHERE execution_id = $1 AND barrier = $2 AND seq > $3 ORDER BY item_index""",
            *(execution, barrier, after_seq),
        )
        states = [(row["item_index"], row["state"]) for row in rows]
        return _runs(states, None if after_seq >= 0 else split.total, _unheard(split))

    async def failures(self, execution: str, barrier: str) -> Sequence[Failures]:
        """The failed items by node and error code, the most frequent first, each with an example."""
        rows = await self._database.fetch(
            """SELECT error_node, error_code, COUNT(*) AS n, MIN(item_index) AS example FROM history_item
            WHERE execution_id = $1 AND barrier = $2 AND state = 'failed'
            GROUP BY error_node, error_code ORDER BY COUNT(*) DESC, MIN(item_index)""",
            *(execution, barrier),
        )
        return [
            Failures(
                node=row["error_node"] or "",
                code=row["error_code"] or "",
                count=row["n"],
                example=row["example"],
                error=await self._error(execution, barrier, row["example"], row["error_node"]),
            )
            for row in rows
        ]

    async def _error(self, execution: str, barrier: str, index: int, node: str | None) -> ErrorInfo | None:
        row = await self._database.fetch_one(
            """SELECT error FROM history_step WHERE execution_id = $1 AND barrier = $2 AND item_index = $3
            AND node_id = $4 AND error IS NOT NULL ORDER BY at LIMIT 1""",
            *(execution, barrier, index, node or ""),
        )
        return msgspec.json.decode(row["error"], type=ErrorInfo) if row else None

    async def _rows(
        self, execution: str, barrier: str, start: int, state: Sequence[str], limit: int
    ) -> Sequence[Item]:
        where = Conditions()
        where.add("execution_id = ? AND barrier = ? AND item_index >= ?", execution, barrier, start)
        if state:
            where.one_of("state", list(state))
        sql = f"SELECT * FROM history_item WHERE {where} ORDER BY item_index LIMIT {where.arg(limit)}"
        return [_item(row) for row in await self._database.fetch(sql, *where.args)]


def _split(row: Row) -> Split:
    counts = [row[state] for state in ("running", "succeeded", "failed", "skipped")]
    total = row["total"] if row["total"] is not None else sum(counts)
    closed = row["closed_by"] is not None
    unheard = max(0, total - sum(counts))
    over = closed or row["ended_at"] is not None
    return Split(
        barrier=row["barrier"],
        node=row["node_id"],
        scope=row["scope"] or None,
        scope_item=row["scope_item"] if row["scope"] else None,
        total=total,
        pending=0 if over else unheard,
        running=row["running"],
        succeeded=row["succeeded"],
        failed=row["failed"],
        skipped=row["skipped"] + (unheard if over else 0),
        closed=closed,
        seq=row["seq"],
    )


def _unheard(split: Split) -> ItemState:
    """The state of items nobody has heard of."""
    counted = split.running + split.succeeded + split.failed + split.skipped
    return "skipped" if split.closed or counted >= split.total else "pending"


def _item(row: Row) -> Item:
    values = as_dict(row)
    for name in ("execution_id", "barrier", "at"):
        del values[name]
    return Item(index=values.pop("item_index"), **values)


def _runs(states: Sequence[tuple[int, ItemState]], total: int | None, unheard: ItemState) -> list[Run]:
    """Equal neighbours as one; with a `total`, gaps as items nobody has heard of."""
    runs: list[Run] = []

    def add(first: int, state: ItemState, count: int) -> None:
        if runs and runs[-1][1] == state and runs[-1][0] + runs[-1][2] == first:
            runs[-1] = (runs[-1][0], state, runs[-1][2] + count)
        elif count > 0:
            runs.append((first, state, count))

    at = 0
    for index, state in states:
        if total is not None:
            add(at, unheard, index - at)
        add(index, state, 1)
        at = index + 1
    if total is not None:
        add(at, unheard, total - at)
    return runs
