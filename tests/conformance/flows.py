"""Workflows as tests write them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.formats.graph import compile_workflow
from rune.nodes import load_builtin
from tests.conformance.nodes import TYPES

__all__ = ["compile_bytes", "compiled", "edge", "fan_out", "flow", "node"]

REGISTRY = Registry([*load_builtin(), *TYPES])


def node(id: str, type: str = "note", /, **rest: Any) -> dict[str, Any]:
    """A node of a definition; what is not a field of the node is a parameter."""
    fields = {"name", "error", "retry", "trigger", "credentials", "x"}
    made = {"id": id, "type": type, "parameters": {k: v for k, v in rest.items() if k not in fields}}
    return made | {k: v for k, v in rest.items() if k in fields}


def edge(src: str, dst: str, port: str = "out", id: str = "") -> dict[str, Any]:
    """An edge of a definition."""
    named = id or f"{src}-{dst}" + ("" if port == "out" else f"-{port}")
    return {"id": named, "src": src, "dst": dst, "port": port}


def flow(nodes: Sequence[dict[str, Any]], *ways: str | dict[str, Any]) -> dict[str, Any]:
    """A definition; a way is an edge, or a chain such as `a > b > c` or `a:true > b`."""
    edges: list[dict[str, Any]] = []
    for way in ways:
        if isinstance(way, dict):
            edges.append(way)
            continue
        stops = [stop.strip() for stop in way.split(">")]
        for src, dst in itertools.pairwise(stops):
            name, _, port = src.partition(":")
            edges.append(edge(name, dst.partition(":")[0], port or "out"))
    return {"workflow_id": "wf", "nodes": list(nodes), "edges": edges}


def fan_out(*body: dict[str, Any], gather: dict[str, Any] | None = None, **split: Any) -> dict[str, Any]:
    """split `s` > body, one after the other > aggregator `g` > `end`."""
    nodes = [
        node("s", "split", **{"input_array": "$trigger", **split}),
        *body,
        gather or node("g", "aggregator"),
    ]
    return flow([*nodes, node("end")], " > ".join(n["id"] for n in [*nodes, node("end")]))


def compiled(definition: Mapping[str, Any]) -> Workflow:
    """The workflow that a definition means."""
    return compile_workflow(definition, REGISTRY)


def compile_bytes(definition: bytes) -> Workflow:
    """The same, of a definition as it travels."""
    return compile_workflow(msgspec.json.decode(definition), REGISTRY, definition=definition)
