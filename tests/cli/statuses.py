"""Workflows and statuses to count."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.errors import ErrorInfo
from rune.core.messages import Frame, NodeStatusMessage
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.formats.graph import compile_workflow
from rune.nodes import load_builtin

REGISTRY = Registry(load_builtin())


def flow(types: dict[str, str], edges: list[tuple[str, str]], **parameters: dict[str, Any]) -> Workflow:
    """A workflow of nodes by id and type."""
    needed = {"log": {"message": "x"}, "split": {"input_array": [1]}, "conditional": {"expression": "true"}}
    nodes = [
        {"id": id, "type": type, "parameters": parameters.get(id, needed.get(type, {}))}
        for id, type in types.items()
    ]
    arrows = [{"id": f"{a}-{b}", "src": a, "dst": b} for a, b in edges]
    return compile_workflow({"workflow_id": "w", "nodes": nodes, "edges": arrows}, REGISTRY)


def fan_out() -> Workflow:
    """For each, for each."""
    types = {"outer": "split", "inner": "split", "work": "edit", "some": "aggregator", "all": "aggregator"}
    return flow(types, [("outer", "inner"), ("inner", "work"), ("work", "some"), ("some", "all")])


def status(node: str, status: str, **fields: Any) -> NodeStatusMessage:
    """One status, as the engine sends it."""
    if "count" in fields:
        fields["output"] = msgspec.Raw(msgspec.json.encode({"count": fields.pop("count")}))
    if "error" in fields:
        fields["error"] = ErrorInfo(fields["error"], "BROKEN")
    if "barrier" in fields:
        fields["lineage_stack"] = (Frame("inner", 0, barrier=fields.pop("barrier")),)
    return NodeStatusMessage(
        workflow_id="w",
        execution_id="x",
        node_id=node,
        status=status,  # type: ignore[arg-type]
        executed_at="2026-01-01T00:00:00.000Z",
        duration_ms=0,
        **fields,
    )
