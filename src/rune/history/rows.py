"""The rows that the recorder writes, in the order of their columns, and which of two facts counts."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

__all__ = ["ENDED_STEP", "ExecutionRow", "ItemRow", "NodeRow", "SplitRow", "StepRow", "precedence"]

ENDED_STEP = ("success", "failed")


class ExecutionRow(Struct, gc=False):
    """An execution, as far as what happens in it changes it."""

    id: str
    status: str
    started_at: float | None
    ended_at: float | None
    duration_ms: int | None
    error: str | None
    reason: str | None
    result: str | None
    result_refs: str | None
    seq: int


class StepRow(Struct, gc=False):
    """One branch at one node."""

    execution_id: str
    barrier: str
    item_index: int
    step: str
    node_id: str
    status: str
    """`running`, `waiting` (also for its next attempt), `success`, `failed`, or `stopped` by the end."""
    attempt: int
    at: float
    started_at: float
    ended_at: float | None
    duration_ms: int | None
    port: str | None
    output: str | None
    output_hash: str | None
    output_size: int | None
    error: str | None
    error_code: str | None
    details: str | None
    attempts: str | None
    seq: int
    sets: str | None = None
    sets_hash: str | None = None
    sets_size: int | None = None
    turn: int | None = None


class NodeRow(Struct, gc=False):
    """How many steps of a node are in each state."""

    execution_id: str
    node_id: str
    running: int
    waiting: int
    success: int
    failed: int
    stopped: int
    last_at: float
    resume_at: float | None
    seq: int


class SplitRow(Struct, gc=False):
    """A fan-out, and how many of its items are in each state."""

    execution_id: str
    barrier: str
    node_id: str
    scope: str
    scope_item: int
    total: int | None
    running: int
    succeeded: int
    failed: int
    skipped: int
    processed: int
    left_out: int
    closed_by: str | None
    seq: int

    def stragglers(self, *, ended: bool) -> str:
        """The state of items that were heard of, but neither arrived nor failed."""
        if self.closed_by is None:
            return "skipped" if ended else "running"
        if self.closed_by == self.node_id or (self.processed == self.total and not self.left_out):
            return "succeeded"
        return "skipped"


class ItemRow(Struct, gc=False):
    """One item of a fan-out."""

    execution_id: str
    barrier: str
    item_index: int
    state: str
    label: str
    key: str
    at: float
    """When it failed, or 0."""
    error_code: str | None
    error_node: str | None
    seq: int


def precedence(row: StepRow) -> tuple[Any, ...]:
    """Of two facts about a step, in whatever order they come, the greater one counts.

    An end counts more than anything before it, a later attempt more than an earlier one. Of two that say the
    same, the one that was first counts: the other comes of a Task that was delivered again.
    """
    if row.status in ENDED_STEP:
        return (True, row.attempt, row.status, 0, -row.at)
    if row.error is not None:
        return (False, row.attempt, "3 tried", 0, -row.at)
    if row.details is not None:
        return (False, row.attempt, "2 waiting", _progress(row.details), -row.at)
    return (False, row.attempt, "1 running", 0, -row.at)


def _progress(details: str) -> int:
    """How far a join says it has come."""
    told = msgspec.json.decode(details)
    found = told.get("processed", told.get("arrived", 0)) if isinstance(told, dict) else 0
    return found if isinstance(found, int) else 0
