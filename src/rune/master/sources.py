"""Workflows as people send them: a text or an object in one of the formats, compiled, compared and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rune.core.errors import DefinitionError
from rune.core.errors import Problem as Flaw
from rune.core.playbook.identity import is_playbook
from rune.core.workflow import Workflow
from rune.formats.definition import check_linked, examine
from rune.formats.graph import Registry
from rune.formats.linking import Resolver
from rune.master.problems import HttpProblem, flaws_as_errors, pointer

__all__ = [
    "Compiled",
    "compile_definition",
    "compile_given",
    "compile_source",
    "differences",
    "drawn",
    "flaws",
]


class Compiled(msgspec.Struct):
    """What became of a source."""

    flow: Workflow | None
    """None when there are errors among the problems."""
    definition: dict[str, Any]
    """What it says, as an object."""
    problems: list[Flaw]

    @property
    def format(self) -> str:
        """What it is written in."""
        return "playbook" if is_playbook(self.definition) else "graph"

    def runnable(self) -> Workflow:
        """The workflow; DefinitionError if there is none."""
        if self.flow is None:
            raise DefinitionError(self.problems)
        return self.flow


def compile_source(
    text: str, format: str | None, registry: Registry, resolver: Resolver | None = None, id: str = ""
) -> Compiled:
    """What a text means, in the format it says, or that it shows by itself."""
    document, flow, problems = examine(text, id or "source", registry, resolver=resolver, identity=id)
    return _of_format(Compiled(flow, _linked(flow, document.value), problems), format)


def compile_definition(
    definition: dict[str, Any],
    registry: Registry,
    format: str | None = None,
    resolver: Resolver | None = None,
    id: str = "",
) -> Compiled:
    """What a definition that is given as an object means."""
    flow, problems = check_linked(definition, registry, resolver, (id, id or "this one"))
    return _of_format(Compiled(flow, _linked(flow, definition), problems), format)


def compile_given(
    definition: dict[str, Any] | None,
    source: str | None,
    format: str | None,
    registry: Registry,
    resolver: Resolver | None = None,
    id: str = "",
) -> Compiled:
    """What a workflow means that is given as an object or as a text; `resolver` finds what it calls."""
    if source is not None:
        return compile_source(source, format, registry, resolver, id)
    return compile_definition(definition or {}, registry, format, resolver, id)


def _linked(flow: Workflow | None, written: dict[str, Any]) -> dict[str, Any]:
    """What a workflow says, with all that it calls."""
    if flow is None or not flow.called:
        return written
    return {**written, "workflows": msgspec.json.decode(flow.definition)["workflows"]}


def _of_format(compiled: Compiled, format: str | None) -> Compiled:
    if format is not None and compiled.definition and format != compiled.format:
        raise HttpProblem(422, "OTHER_FORMAT", f"this is a {compiled.format}, not a {format}")
    return compiled


def flaws(problems: list[Flaw]) -> list[dict[str, Any]]:
    """Problems as the API tells them, with how bad each is."""
    errors = flaws_as_errors(problems)
    return [{**error, "severity": flaw.severity} for error, flaw in zip(errors, problems, strict=True)]


# --- comparing ---


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What changed between two definitions; nodes and edges are found by their ids, not by their places."""
    return list(_compare(_by_id(before), _by_id(after), ()))


def _by_id(definition: Mapping[str, Any]) -> dict[str, Any]:
    keyed = dict(definition)
    for part in ("nodes", "edges"):
        if isinstance(keyed.get(part), list):
            keyed[part] = {each["id"]: each for each in keyed[part]}
    return keyed


def _compare(before: Any, after: Any, path: tuple[str | int, ...]) -> Iterator[dict[str, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            if key not in after:
                yield {"op": "remove", "path": pointer((*path, key)), "before": before[key]}
            elif key not in before:
                yield {"op": "add", "path": pointer((*path, key)), "after": after[key]}
            else:
                yield from _compare(before[key], after[key], (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _compare(old, new, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": pointer(path), "before": before, "after": after}


# --- drawing ---


def drawn(compiled: Compiled, registry: Registry) -> dict[str, Any]:
    """The graph as something to draw, also one that cannot be run."""
    written = {
        node["id"]: node for node in _objects(compiled.definition, "nodes") if isinstance(node.get("id"), str)
    }
    if compiled.flow is None:
        nodes = [_node(node, registry) for node in written.values()]
    else:
        # A playbook has no nodes of its own: they are made of its steps.
        nodes = [
            _node({"id": id, "name": node.name, "type": node.type.name, **written.get(id, {})}, registry)
            for id, node in compiled.flow.nodes.items()
        ]
    return {"nodes": nodes, "edges": list(_edges(compiled))}


def _edges(compiled: Compiled) -> Iterator[dict[str, Any]]:
    if compiled.flow is not None:
        for edge in compiled.flow.edges.values():
            yield {
                "id": edge.id,
                "source": edge.src,
                "target": edge.dst,
                "port": edge.port,
                "label": edge.label,
            }
        return
    for raw in _objects(compiled.definition, "edges"):
        if isinstance(raw.get("id"), str):
            yield {
                "id": raw["id"],
                "source": str(raw.get("src", "")),
                "target": str(raw.get("dst", "")),
                # Which port a node means by naming an edge shows only in one that can be run.
                "port": "error" if raw.get("is_error") in (True, "error") else str(raw.get("port") or "out"),
                "label": str(raw.get("label") or ""),
            }


def _objects(definition: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = definition.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _node(node: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    name = node.get("type")
    type = registry.get(name) if isinstance(name, str) else None
    x, y = _position(node.get("position"))
    return {
        "id": node["id"],
        "name": str(node.get("name") or node["id"]),
        "type": str(name or ""),
        "role": type.role.value if type else "plain",
        "trigger": bool(node.get("trigger") or (type is not None and type.trigger)),
        "x": x,
        "y": y,
        "parameters": node.get("parameters") or {},
    }


def _position(value: Any) -> tuple[float | None, float | None]:
    match value:
        case [int() | float() as x, int() | float() as y]:
            return x, y
        case {"x": int() | float() as x, "y": int() | float() as y}:
            return x, y
    return None, None
