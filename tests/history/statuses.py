"""Statuses by hand: of steps, of items, of joins, as an engine tells them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.messages import CompletionMessage, Frame, NodeStatusMessage
from rune.engine.statuses import iso

__all__ = ["EXECUTION", "arrival", "completion", "failure", "item", "status", "taking"]

EXECUTION = "exec_1"


def status(step: str, status: str = "running", at: float = 1000.0, **fields: Any) -> NodeStatusMessage:
    """A status of the step of a node of the same name."""
    told: dict[str, Any] = {
        "workflow_id": "wf",
        "execution_id": EXECUTION,
        "node_id": step.partition(":")[0],
        "duration_ms": 0,
        "executed_at": iso(at),
        "step": step,
    }
    if "output" in fields:
        fields["output"] = Raw(msgspec.json.encode(fields["output"]))
    return NodeStatusMessage(status=status, **{**told, **fields})  # type: ignore[arg-type]


def failure(step: str, code: str = "BOOM", at: float = 1001.0, **fields: Any) -> NodeStatusMessage:
    """A step that failed."""
    return status(step, "failed", at, error=ErrorInfo(f"{code} happened", code, None, step), **fields)


def item(index: int, total: int = 3, barrier: str = "each", **fields: Any) -> tuple[Frame, ...]:
    """The lineage of an item."""
    return (Frame("each", index, f"{EXECUTION}_each_{index}", total, barrier, **fields),)


def arrival(
    index: int, total: int = 3, at: float = 1002.0, *, processed: int | None = None
) -> NodeStatusMessage:
    """An item that has come to the aggregator; with `processed`, how far that is."""
    fields: dict[str, Any] = {"lineage_stack": item(index, total), "join": derive("each", "~gather")}
    if processed is None:
        return status(f"all:{index}", at=at, **fields)
    details = {"processed": processed, "total": total, "failed": 0, "skipped": 0}
    return status(f"all:{index}", "waiting", at, details=details, **fields)


def taking(state: str = "running", at: float = 1003.0, **fields: Any) -> NodeStatusMessage:
    """The aggregator, when the fan-out has closed."""
    if state == "running":
        fields["closes"] = "each"
    return status(derive("each", "~gather"), state, at, node_id="all", **fields)


def completion(state: str = "completed", at: float = 1010.0, **fields: Any) -> CompletionMessage:
    """The end."""
    told: dict[str, Any] = {
        "workflow_id": "wf",
        "execution_id": EXECUTION,
        "final_context": {"$edit": Raw(b"1")},
        "completed_at": iso(at),
        "total_duration_ms": 10_000,
    }
    return CompletionMessage(status=state, **{**told, **fields})  # type: ignore[arg-type]
