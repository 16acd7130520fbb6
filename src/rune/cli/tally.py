"""What is known of each node while executions run: counted as statuses come, read a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from rune.core.errors import ErrorInfo
from rune.core.messages import NodeStatusMessage
from rune.core.node import Role
from rune.core.paths import scoping
from rune.core.result import ordered
from rune.core.workflow import Node, Workflow

__all__ = ["Row", "State", "Tally"]

State = Literal["pending", "running", "waiting", "success", "failed", "skipped"]


class _Counts(msgspec.Struct):
    """What a split or an aggregator says of its items; the rest of its output is passed over unread."""

    count: int | None = 0
    """None of a split that does not know yet."""
    failed: int = 0
    skipped: int = 0


_counts = msgspec.json.Decoder(_Counts)


class Items:
    """The items of a fan-out; of all its barriers, where it stands inside another."""

    __slots__ = ("barriers", "closed", "failed", "processed", "reading", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.reading = 0
        """Fan-outs that do not know yet how many items they have."""
        self.processed = 0
        self.failed = 0
        self.closed = _Counts()
        self.barriers: dict[str, tuple[int, int]] = {}
        """Processed and failed, by barrier: what was counted already is not counted again."""

    @property
    def total(self) -> int:
        """How many there are, as far as is known."""
        return max(self.sent, self.processed, self.closed.count or 0)

    def opens(self, barrier: str, count: int | None) -> None:
        """A split has sent out its items, or begins to."""
        if barrier not in self.barriers:
            self.barriers[barrier] = (0, 0)
            self.sent += count or 0
            self.reading += count is None

    def arrives(self, barrier: str, processed: int, failed: int) -> None:
        """An aggregator tells how far it is."""
        before = self.barriers.get(barrier, (0, 0))
        self.barriers[barrier] = (processed, failed)
        self.processed += processed - before[0]
        self.failed += failed - before[1]

    def closes(self, counts: _Counts) -> None:
        """An aggregator has all its items; those that never came to it are counted now."""
        self.reading = max(self.reading - 1, 0)
        self.closed.count = (self.closed.count or 0) + (counts.count or 0)
        self.closed.failed += counts.failed
        self.closed.skipped += counts.skipped


class Row:
    """One node: how many of its steps run, rest and have ended."""

    __slots__ = (
        "arrived",
        "began",
        "changed",
        "depth",
        "error",
        "failed",
        "items",
        "last",
        "node",
        "opener",
        "resting",
        "resume_at",
        "running",
        "succeeded",
    )

    def __init__(self, node: Node, depth: int) -> None:
        self.node = node
        self.depth = depth
        """How many splits it stands in."""
        self.items: Items | None = Items() if node.role in (Role.SPLIT, Role.GATHER) else None
        """Shared by a split and the aggregator that closes it."""
        self.opener: Row | None = None
        """The split that this aggregator closes."""
        self.running = 0
        """Steps that have started and not ended; those that rest are among them."""
        self.resting = 0
        self.resume_at = 0.0
        self.succeeded = 0
        self.failed = 0
        self.arrived: tuple[int, int] | None = None
        """At a merge that waits: so many of so many."""
        self.error: ErrorInfo | None = None
        self.last = ""
        self.began = 0.0
        self.changed = 0.0

    @property
    def state(self) -> State:
        """Where the node stands, all its steps taken together."""
        if self.node.role in (Role.GATHER, Role.MERGE):
            return self._joining()
        if self.running > self.resting:
            return "running"
        if self.resting:
            return "waiting"
        return self.ended if self.succeeded or self.failed else "pending"

    @property
    def ended(self) -> State:
        """Where the node stands once all is over: what never ran was passed by."""
        if self.succeeded:
            return "success"
        return "failed" if self.failed else "skipped"

    def _joining(self) -> State:
        opened = self.succeeded + self.failed
        if self.opener is not None:
            if opened and opened >= self.opener.succeeded:
                return self.ended
            return "running" if self.opener.succeeded else "pending"
        if self.last in ("success", "failed"):
            return self.ended
        return "waiting" if self.last else "pending"

    @property
    def processed(self) -> tuple[int, int, int, int]:
        """Of an aggregator's items: those that have ended, all, failed ones, skipped ones."""
        items = self.items or Items()
        closed = items.closed
        done = max(items.processed, closed.count or 0)
        return min(done, items.total), items.total, max(items.failed, closed.failed), closed.skipped


class Tally:
    """Rows of nodes in the order of their graphs; `find` gives the workflow of an id."""

    def __init__(
        self, find: Callable[[str], Workflow | None], clock: Callable[[], float] = time.time
    ) -> None:
        self._find = find
        self._clock = clock
        self._flows: dict[str, dict[str, Row]] = {}

    def __iter__(self) -> Iterator[Row]:
        return (row for rows in self._flows.values() for row in rows.values())

    def add(self, flow: Workflow) -> dict[str, Row]:
        """Make the rows of a workflow."""
        scopes = scoping(flow)
        rows: dict[str, Row] = {}
        for id in ordered(flow):
            node = flow.nodes[id]
            if not node.trigger:
                rows[id] = Row(node, len(scopes.scope.get(id, ())) - (node.role is Role.GATHER))
        for split, gather in scopes.closer.items():
            rows[gather].opener = rows[split]
            rows[split].items = rows[gather].items
        self._flows[flow.id] = rows
        return rows

    def hear(self, statuses: Sequence[NodeStatusMessage]) -> None:
        """Count statuses. Every step of every item passes here, so it does as little as it can."""
        now = self._clock()
        row: Row | None = None
        for status in statuses:
            if row is None or row.node.id != status.node_id:
                row = self._row(status)
                if row is None:
                    continue
                row.began = row.began or now
                row.changed = now
            kind = row.last = status.status
            if kind == "running":
                if row.resting and status.attempt > 1:
                    row.resting -= 1
                else:
                    row.running += 1
            elif kind == "success":
                row.succeeded += 1
                _one_less(row)
                if row.items is not None:
                    _opened(row, row.items, status)
            else:
                _other(row, kind, status)

    def _row(self, status: NodeStatusMessage) -> Row | None:
        rows = self._flows.get(status.workflow_id)
        if rows is None:
            flow = self._find(status.workflow_id)
            if flow is None:
                return None
            rows = self.add(flow)
        return rows.get(status.node_id)


def _one_less(row: Row) -> None:
    # After a restart the first that is heard of a step may be its end.
    if row.running:
        row.running -= 1
    if row.resting:
        row.resting -= 1


def _opened(row: Row, items: Items, status: NodeStatusMessage) -> None:
    """A split has opened its fan-out, or an aggregator has closed one."""
    if status.output is None:
        return
    counts = _counts.decode(status.output)
    if row.node.role is Role.SPLIT:
        items.opens(status.step, counts.count)
    else:
        items.closes(counts)


def _other(row: Row, kind: str, status: NodeStatusMessage) -> None:
    details: dict[str, Any] = status.details or {}
    if kind == "failed":
        row.error = status.error
        if "retry_at" not in details:
            row.failed += 1
            _one_less(row)
            return
    if "processed" in details and row.items is not None:
        row.items.arrives(status.lineage_stack[-1].barrier, details["processed"], details["failed"])
    elif "arrived" in details:
        row.arrived = details["arrived"], details["expected"]
    else:
        row.resting += 1
        until = details.get("resume_at") or details.get("retry_at")
        row.resume_at = max(row.resume_at, _seconds(until)) if until else row.resume_at


def _seconds(moment: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(moment).timestamp()
