"""What is run: workflows as somebody would write them, and the first message of an execution."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from benchmarks.execution import fan_out
from rune.core.ids import new_execution_id
from rune.core.messages import Task

__all__ = ["chain", "fan_out", "first_task", "waits"]

_ADD = [{"name": "n", "value": "{{ $json.n + 1 }}"}]


def chain(length: int) -> dict[str, Any]:
    """Edit nodes, one after another, each adding one."""
    nodes = [{"id": f"n{i}", "type": "edit", "parameters": {"assignments": _ADD}} for i in range(length)]
    edges = [{"id": f"e{i}", "src": f"n{i}", "dst": f"n{i + 1}"} for i in range(length - 1)]
    return {"workflow_id": "chain", "nodes": nodes, "edges": edges}


def waits() -> dict[str, Any]:
    """A wait for each item, until the time that the item is, and an aggregator."""
    rest = {"resume": "until", "until": "{{ $item }}"}
    return {
        "workflow_id": "waits",
        "nodes": [
            {"id": "each", "type": "split", "parameters": {"input_array": "$trigger.times"}},
            {"id": "rest", "type": "wait", "parameters": rest},
            {"id": "all", "type": "aggregator"},
        ],
        "edges": [{"id": "1", "src": "each", "dst": "rest"}, {"id": "2", "src": "rest", "dst": "all"}],
    }


def first_task(definition: dict[str, Any], trigger: Any) -> Task:
    """What starts an execution, with the fields of RFC 001 and no others."""
    return Task(
        workflow_id=definition["workflow_id"],
        execution_id=new_execution_id(),
        current_node=definition["nodes"][0]["id"],
        workflow_definition=Raw(msgspec.json.encode(definition)),
        accumulated_context={"$trigger": Raw(msgspec.json.encode(trigger))},
    )
