"""Executions and what is in them, as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rune.history.executions import Execution, NodeCounts
from rune.master.answering import iso

__all__ = ["counts", "summary", "whole"]


def summary(execution: Execution) -> dict[str, Any]:
    """An execution in a list."""
    return {
        "id": execution.id,
        "workflow_id": execution.workflow_id,
        "workflow_version": execution.workflow_version,
        "name": execution.name,
        "status": execution.status,
        "trigger": execution.trigger,
        "priority": execution.priority,
        "labels": execution.labels,
        "created_at": iso(execution.created_at),
        "started_at": iso(execution.started_at),
        "ended_at": iso(execution.ended_at),
        "duration_ms": execution.duration_ms,
        "error": execution.error,
        "reason": execution.reason,
        "parent": execution.parent,
        "created_by": execution.created_by,
        "seq": execution.seq,
    }


def whole(
    execution: Execution,
    nodes: Mapping[str, NodeCounts] | None = None,
    splits: Iterable[Any] = (),
    children: Iterable[Execution] = (),
) -> dict[str, Any]:
    """An execution with where it stands."""
    return {
        **summary(execution),
        "input": execution.input,
        "children": [{"id": child.id, "trigger": child.trigger} for child in children],
        "nodes": {id: counts(found) for id, found in (nodes or {}).items()},
        "splits": list(splits),
    }


def counts(found: NodeCounts) -> dict[str, Any]:
    """How many steps of a node are in each state."""
    return {
        "running": found.running,
        "waiting": found.waiting,
        "success": found.success,
        "failed": found.failed,
        "stopped": found.stopped,
        "last_at": iso(found.last_at),
        "resume_at": iso(found.resume_at),
    }
