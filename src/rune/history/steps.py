"""Steps: each branch at each node, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rune.core.errors import ErrorInfo
from rune.core.messages import Frame
from rune.history import paging
from rune.history.asking import Conditions
from rune.history.database import Database, Row, as_dict
from rune.history.lineages import Lineages
from rune.history.paging import Page, paged
from rune.history.telling import Attempt

__all__ = ["StepRecord", "Steps"]


class StepRecord(Struct, frozen=True, kw_only=True):
    """One branch at one node."""

    step: str
    node_id: str
    status: str
    """`running`, `waiting` (also for its next attempt), `success`, `failed`, or `stopped` by the end."""
    attempt: int
    lineage: tuple[Frame, ...]
    """The items it belongs to, from the outermost in."""
    at: float
    """When it got into this state."""
    started_at: float
    ended_at: float | None
    duration_ms: int | None
    port: str | None
    """By which it left, if it succeeded; None then follows no edge."""
    output: Raw | None
    """Where it is small; else `output_hash` names it among the values."""
    output_hash: str | None
    output_size: int | None
    error: ErrorInfo | None
    details: dict[str, Any] | None
    attempts: list[Attempt]
    """The tries before the last one."""
    seq: int
    sets: Raw | None = None
    """Variables of the execution that it has set, where they are small; else `sets_hash` names them."""
    sets_hash: str | None = None
    sets_size: int | None = None
    turn: int | None = None
    """When it set them, among all steps that did; None if it set none."""


class Steps:
    """Reads steps; the recorder writes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lineages = Lineages(database)

    async def get(self, execution: str, step: str) -> StepRecord | None:
        """One step."""
        row = await self._database.fetch_one(
            "SELECT * FROM history_step WHERE execution_id = $1 AND step = $2", execution, step
        )
        return (await self._records(execution, [row]))[0] if row else None

    async def list(
        self,
        execution: str,
        *,
        node: str | None = None,
        status: Sequence[str] = (),
        scope: tuple[str, int] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[StepRecord]:
        """Steps as they started; `scope` is (barrier, item), with ("", 0) for those outside any split."""
        where = _where(execution, node, status, scope)
        if cursor is not None:
            where.add("(started_at, step) > (?, ?)", *paging.after(cursor, float, str))
        sql = f"""SELECT * FROM history_step WHERE {where}
            ORDER BY started_at, step LIMIT {where.arg(limit + 1)}"""
        found = await self._records(execution, await self._database.fetch(sql, *where.args))
        return paged(found, limit, lambda step: (step.started_at, step.step))

    async def scan(
        self,
        execution: str,
        *,
        status: Sequence[str] = (),
        after: StepRecord | None = None,
        limit: int = 1000,
    ) -> Sequence[StepRecord]:
        """Steps after one, item by item: the cheapest way to see all of them."""
        where = _where(execution, None, status, None)
        if after is not None:
            where.add("(barrier, item_index, step) > (?, ?, ?)", *_place(after))
        sql = f"""SELECT * FROM history_step WHERE {where}
            ORDER BY barrier, item_index, step LIMIT {where.arg(limit)}"""
        return await self._records(execution, await self._database.fetch(sql, *where.args))

    async def setters(self, execution: str) -> Sequence[str]:
        """The nodes whose steps have set variables."""
        sql = "SELECT DISTINCT node_id FROM history_step WHERE execution_id = $1 AND turn IS NOT NULL"
        return [row["node_id"] for row in await self._database.fetch(sql, execution)]

    async def _records(self, execution: str, rows: Sequence[Row]) -> Sequence[StepRecord]:
        places = {(row["barrier"], row["item_index"]) for row in rows if row["barrier"]}
        lineages = await self._lineages.of(execution, places)
        return [_record(row, lineages.get((row["barrier"], row["item_index"]), ())) for row in rows]


def _place(step: StepRecord) -> tuple[str, int, str]:
    frame = step.lineage[-1] if step.lineage else None
    return (frame.barrier, frame.item_index, step.step) if frame else ("", 0, step.step)


def _where(
    execution: str, node: str | None, status: Sequence[str], scope: tuple[str, int] | None
) -> Conditions:
    where = Conditions()
    where.add("execution_id = ?", execution)
    if node is not None:
        where.add("node_id = ?", node)
    if status:
        where.one_of("status", list(status))
    if scope is not None:
        where.add("barrier = ? AND item_index = ?", *scope)
    return where


def _record(row: Row, lineage: tuple[Frame, ...]) -> StepRecord:
    values = as_dict(row)
    for name in ("execution_id", "barrier", "item_index", "error_code"):
        del values[name]
    error, details = values["error"], values["details"]
    for name in ("output", "sets"):
        values[name] = Raw(values[name].encode()) if values[name] is not None else None
    values["error"] = msgspec.json.decode(error, type=ErrorInfo) if error is not None else None
    values["details"] = msgspec.json.decode(details) if details is not None else None
    values["attempts"] = msgspec.json.decode(values["attempts"] or "[]", type=list[Attempt])
    return StepRecord(lineage=lineage, **values)
