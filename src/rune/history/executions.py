"""Executions: what was asked for, how it goes, and how it ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from rune.core.context import Ref
from rune.core.errors import ConflictError, ErrorInfo
from rune.core.ids import new_execution_id
from rune.history.asking import Conditions
from rune.history.called import carried, input_in
from rune.history.database import Database, Row, Statement, as_dict
from rune.history.events import Event, packed
from rune.history.grouping import Grouped
from rune.history.paging import Page, after, paged
from rune.history.retention import forget
from rune.history.workflows import keep_definition

__all__ = [
    "ALIVE",
    "Execution",
    "Executions",
    "Filter",
    "NewExecution",
    "NodeCounts",
    "Status",
    "Trigger",
]

Status = Literal["pending", "running", "paused", "completed", "failed", "halted"]
Trigger = Literal["manual", "api", "webhook", "schedule", "redrive", "fork", "wire", "cli", "workflow"]
ALIVE: tuple[Status, ...] = ("pending", "running", "paused")


class NewExecution(Struct, frozen=True, kw_only=True):
    """What is asked for."""

    id: str = msgspec.field(default_factory=new_execution_id)
    definition: str
    """The graph it runs, as JSON."""
    name: str = ""
    workflow_id: str | None = None
    workflow_version: int | None = None
    trigger: Trigger = "api"
    input: Raw | None = None
    """JSON."""
    priority: int = 0
    parent: str | None = None
    root: str = ""
    """What its steps' ids are derived from; empty is its own id."""
    labels: Mapping[str, str] | None = None
    created_by: str | None = None


class Execution(Struct, frozen=True, kw_only=True):
    """All that is known of an execution as a whole."""

    id: str
    workflow_id: str | None
    workflow_version: int | None
    definition_hash: str | None
    name: str
    status: Status
    trigger: Trigger
    input: Raw | None
    priority: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    duration_ms: int | None
    error: ErrorInfo | None
    reason: str | None
    result: Raw | None
    """The final context, but for what `result_refs` say; not read for lists."""
    result_refs: tuple[Ref, ...]
    parent: str | None
    root: str
    labels: dict[str, str]
    created_by: str | None
    seq: int


class Filter(Struct, frozen=True, kw_only=True):
    """Which executions to list."""

    workflow: str | None = None
    status: Sequence[Status] = ()
    trigger: Sequence[Trigger] = ()
    since: float | None = None
    """Created then or later."""
    until: float | None = None
    """Created before."""
    text: str = ""
    parent: str | None = None
    label: tuple[str, str] | None = None


class NodeCounts(Struct, frozen=True, kw_only=True):
    """How many steps of a node are in each state."""

    node_id: str
    running: int
    waiting: int
    success: int
    failed: int
    stopped: int
    """Still running or waiting when the execution ended."""
    last_at: float
    resume_at: float | None
    """When the last of those that wait for a time goes on."""
    seq: int


_ALL = """id, workflow_id, workflow_version, definition_hash, name, status, trigger, input, priority,
    created_at, started_at, ended_at, duration_ms, error, reason, result, result_refs, parent, root, labels,
    created_by, seq"""
_LISTED = re.sub(r" (input|result|result_refs),", r" NULL AS \1,", _ALL)
"""Without what may be large."""
_COUNTS = "node_id, running, waiting, success, failed, stopped, last_at, resume_at, seq"
_INSERT = """INSERT INTO history_execution (id, workflow_id, workflow_version, definition_hash, name, status,
    trigger, input, priority, created_at, parent, root, labels, created_by)
    VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10, $11, $12, $13)"""
# No status is no status a row may have: where it is not one of `among`, nothing at all is written.
_CHANGE = """UPDATE history_execution SET seq = seq + 1, status = CASE WHEN status IN ({among}) THEN $2 END
    WHERE id = $1 RETURNING id"""
_EVENT = """INSERT INTO history_event (execution_id, first_seq, last_seq, data)
    SELECT id, seq, seq, $2 FROM history_execution WHERE id = $1"""
_CHILDREN = 100
"""How many of an execution's children are named."""
_EVERY = Filter()


class Executions:
    """Stores executions; what happens in them is the recorder's to write."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._counting = Grouped(partial(_counts, database))

    # --- one ---

    async def create(self, new: NewExecution) -> Execution:
        """Store an execution that is about to start; ConflictError if its id is taken."""
        (execution,) = await self.create_all([new])
        return execution

    async def create_all(self, several: Sequence[NewExecution]) -> list[Execution]:
        """Store several executions, all or none."""
        now = self._clock()
        definitions: dict[str, tuple[str, Statement]] = {}
        for new in several:
            if new.definition not in definitions:
                definitions[new.definition] = keep_definition(new.definition, now)
        rows = [_row(new, definitions[new.definition][0], now) for new in several]
        await self._database.write(*(keep for _, keep in definitions.values()), (_INSERT, rows))
        return [_created(new, definitions[new.definition][0], now) for new in several]

    async def get(self, id: str) -> Execution | None:
        """One execution, with its result."""
        row = await self._database.fetch_one(f"SELECT {_ALL} FROM history_execution WHERE id = $1", id)
        return _execution(row) if row else None

    async def definition(self, id: str) -> str | None:
        """The graph an execution runs; None where it is not known."""
        row = await self._database.fetch_one(
            """SELECT d.text FROM history_execution e JOIN definition d ON d.hash = e.definition_hash
            WHERE e.id = $1""",
            id,
        )
        return row["text"] if row else await carried(self._database, self.definition, id)

    async def set_status(
        self, id: str, status: Status, among: Iterable[Status], details: Mapping[str, Any] | None = None
    ) -> bool:
        """Change the status if it is one of `among`, and log it as an event; False if it was not."""
        event = Event(at=self._clock(), kind=status, details=dict(details) if details else None)
        change = _CHANGE.format(among=", ".join(f"'{one}'" for one in among))
        try:
            changed, _ = await self._database.write(
                (change, [(id, status)]), (_EVENT, [(id, packed([event]))])
            )
        except ConflictError:
            return False
        return bool(changed)

    async def log(self, id: str, kind: str, details: Mapping[str, Any] | None = None) -> bool:
        """Log an event that changes nothing else; False if there is no such execution."""
        event = Event(at=self._clock(), kind=kind, details=dict(details) if details else None)
        advance = "UPDATE history_execution SET seq = seq + 1 WHERE id = $1 RETURNING id"
        advanced, _ = await self._database.write((advance, [(id,)]), (_EVENT, [(id, packed([event]))]))
        return bool(advanced)

    async def delete(self, id: str) -> bool:
        """Forget an execution that has ended; False if it has not, is not there, or is being redriven."""
        return bool(await forget(self._database, [id]))

    # --- several ---

    async def list(
        self,
        filter: Filter = _EVERY,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Execution]:
        """Executions, the newest first, without their results."""
        where = _where(filter)
        if cursor is not None:
            where.add("(created_at, id) < (?, ?)", *after(cursor, float, str))
        sql = f"""SELECT {_LISTED} FROM history_execution WHERE {where}
            ORDER BY created_at DESC, id DESC LIMIT {where.arg(limit + 1)}"""
        found = [_execution(row) for row in await self._database.fetch(sql, *where.args)]
        return paged(found, limit, lambda execution: (execution.created_at, execution.id))

    async def latest(self, each: int = 100) -> Sequence[Execution]:
        """The newest, those that run, and those that have just ended; without inputs and results."""
        parts = (
            ("TRUE", "created_at DESC, id DESC"),
            ("ended_at IS NULL", "created_at DESC, id DESC"),
            ("ended_at IS NOT NULL", "ended_at DESC"),
        )
        found: dict[str, Execution] = {}
        for condition, order in parts:
            sql = f"SELECT {_LISTED} FROM history_execution WHERE {condition} ORDER BY {order} LIMIT $1"
            found |= {row["id"]: _execution(row) for row in await self._database.fetch(sql, each)}
        return list(found.values())

    async def count(self, filter: Filter = _EVERY) -> int:
        """How many there are."""
        where = _where(filter)
        row = await self._database.fetch_one(
            f"SELECT COUNT(*) AS n FROM history_execution WHERE {where}", *where.args
        )
        return int(row["n"]) if row else 0

    async def counts(self) -> dict[str, int]:
        """How many there are of each status."""
        sql = "SELECT status, COUNT(*) AS n FROM history_execution GROUP BY status"
        rows = await self._database.fetch(sql)
        return {row["status"]: row["n"] for row in rows}

    async def children(self, id: str) -> Sequence[Execution]:
        """The first executions that were made from this one, or called by it, the oldest first."""
        rows = await self._database.fetch(
            f"SELECT {_LISTED} FROM history_execution WHERE parent = $1 ORDER BY created_at, id LIMIT $2",
            *(id, _CHILDREN),
        )
        return [_execution(row) for row in rows]

    async def alive(
        self,
        *,
        status: Sequence[Status] = ALIVE,
        before: float | None = None,
        limit: int = 1000,
        after_id: str = "",
    ) -> Sequence[tuple[str, Status, float]]:
        """Id, status and creation of those that have not ended, by id, some at a time."""
        where = Conditions()
        where.add("ended_at IS NULL")
        where.one_of("status", list(status))
        where.add("id > ?", after_id)
        if before is not None:
            where.add("created_at < ?", before)
        sql = f"""SELECT id, status, created_at FROM history_execution WHERE {where}
            ORDER BY id LIMIT {where.arg(limit)}"""
        rows = await self._database.fetch(sql, *where.args)
        return [(row["id"], row["status"], row["created_at"]) for row in rows]

    async def changed(self, since: Mapping[str, int]) -> dict[str, int]:
        """Of these executions, those whose `seq` is another than the one given, with what it is now."""
        where = Conditions()
        where.one_of("id", list(since))
        sql = f"SELECT id, seq FROM history_execution WHERE {where}"
        rows = await self._database.fetch(sql, *where.args)
        return {row["id"]: row["seq"] for row in rows if row["seq"] != since[row["id"]]}

    # --- what is in one ---

    async def nodes(self, id: str, *, after_seq: int = -1) -> dict[str, NodeCounts]:
        """The counts of every node that was reached, or of those that changed after `after_seq`."""
        if after_seq < 0:
            return await self._counting.ask(id)
        rows = await self._database.fetch(
            f"SELECT {_COUNTS} FROM history_node WHERE execution_id = $1 AND seq > $2", id, after_seq
        )
        return {row["node_id"]: NodeCounts(**as_dict(row)) for row in rows}


async def _counts(database: Database, ids: list[str]) -> list[dict[str, NodeCounts]]:
    """The counts of the nodes of several executions, in one question."""
    where = Conditions()
    where.one_of("execution_id", list(dict.fromkeys(ids)))
    found: dict[str, dict[str, NodeCounts]] = {id: {} for id in ids}
    sql = f"SELECT execution_id, {_COUNTS} FROM history_node WHERE {where}"
    for row in await database.fetch(sql, *where.args):
        fields = as_dict(row)
        execution = fields.pop("execution_id")
        found[execution][row["node_id"]] = NodeCounts(**fields)
    return [found[id] for id in ids]


def _where(filter: Filter) -> Conditions:
    where = Conditions()
    if filter.workflow is not None:
        where.add("workflow_id = ?", filter.workflow)
    if filter.status:
        where.one_of("status", list(filter.status))
    if filter.trigger:
        where.one_of("trigger", list(filter.trigger))
    if filter.since is not None:
        where.add("created_at >= ?", filter.since)
    if filter.until is not None:
        where.add("created_at < ?", filter.until)
    if filter.parent is not None:
        where.add("parent = ?", filter.parent)
    if filter.text:
        where.contains(filter.text, "id", "name", "COALESCE(labels, '')", "COALESCE(error, '')")
    if filter.label is not None:
        name, value = (msgspec.json.encode(part).decode() for part in filter.label)
        where.contains(f"{name}:{value}", "COALESCE(labels, '')")
    return where


def _row(new: NewExecution, hash: str, now: float) -> tuple[Any, ...]:
    return (
        new.id,
        new.workflow_id,
        new.workflow_version,
        hash,
        new.name,
        new.trigger,
        bytes(new.input).decode() if new.input is not None else None,
        new.priority,
        now,
        new.parent,
        new.root or new.id,
        msgspec.json.encode(new.labels).decode() if new.labels else None,
        new.created_by,
    )


def _created(new: NewExecution, hash: str, now: float) -> Execution:
    return Execution(
        id=new.id,
        workflow_id=new.workflow_id,
        workflow_version=new.workflow_version,
        definition_hash=hash,
        name=new.name,
        status="pending",
        trigger=new.trigger,
        input=new.input,
        priority=new.priority,
        created_at=now,
        started_at=None,
        ended_at=None,
        duration_ms=None,
        error=None,
        reason=None,
        result=None,
        result_refs=(),
        parent=new.parent,
        root=new.root or new.id,
        labels=dict(new.labels or {}),
        created_by=new.created_by,
        seq=0,
    )


def _execution(row: Row) -> Execution:
    values = as_dict(row)
    for name in ("input", "result"):
        values[name] = Raw(values[name].encode()) if values[name] is not None else None
    if values["trigger"] == "workflow" and values["input"] is None and values["result"] is not None:
        # Whoever called it did not tell the history.
        values["input"] = input_in(values["result"])
    if values["error"] is not None:
        values["error"] = msgspec.json.decode(values["error"], type=ErrorInfo)
    values["result_refs"] = msgspec.json.decode(values["result_refs"] or "[]", type=tuple[Ref, ...])
    values["labels"] = msgspec.json.decode(values["labels"] or "{}")
    return Execution(**values)
