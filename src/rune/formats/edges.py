"""Edges and their ports: what the edges say themselves, and what the nodes they leave say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rune.core.expressions import suggest
from rune.core.node import NodeType
from rune.core.workflow import Edge
from rune.formats.places import Path
from rune.formats.shape import Problems, RawEdge, RawNode, RawWorkflow

__all__ = ["read_edges"]

_POLICIES = ("halt", "ignore", "branch")


def read_edges(raw: RawWorkflow, types: Mapping[str, type[NodeType]], problems: Problems) -> list[Edge]:
    """Every edge that leads from a node to another, at its port."""
    sound = _sound(raw, problems)
    outgoing: dict[str, dict[str, RawEdge]] = {}
    for edge in sound:
        outgoing.setdefault(edge.src, {})[edge.id] = edge
    ports: dict[str, list[str]] = {}
    for node in raw.nodes:
        out = outgoing.get(node.id, {})
        before = problems.errors
        named = _named_ports(node, types.get(node.id), out, problems)
        for id, edge in out.items():
            ports[id] = _ports(edge, named.get(id, []), problems)
        _check_policy(node, ports, out, problems)
        if problems.errors == before and node.id in types:
            _check_followed(node, types[node.id], ports, out, problems)
    return [made for edge in sound for made in _edges(edge, ports[edge.id])]


def _sound(raw: RawWorkflow, problems: Problems) -> list[RawEdge]:
    """The edges that have an id of their own and lead from one node to another."""
    nodes = [node.id for node in raw.nodes]
    known = set(nodes)
    seen: set[str] = set()
    sound = []
    for edge in raw.edges:
        if edge.id and edge.id in seen:
            problems.error("E019", f"two edges have the id {edge.id!r}", (*edge.path, "id"))
        elif _leads_somewhere(edge, nodes, known, problems) and edge.id:
            sound.append(edge)
        seen.add(edge.id)
    return sound


def _leads_somewhere(edge: RawEdge, nodes: list[str], known: set[str], problems: Problems) -> bool:
    for field, end in (("src", edge.src), ("dst", edge.dst)):
        if end and end not in known:
            message = f"the {field!r} of edge {edge.id!r} names no node: {end!r}"
            problems.error("E020", message, (*edge.path, field), _meant(end, nodes))
    if edge.src and edge.src == edge.dst:
        problems.error("E021", f"edge {edge.id!r} leads from {edge.src!r} to itself", edge.path)
        return False
    return edge.src in known and edge.dst in known


def _named_ports(
    node: RawNode, type: type[NodeType] | None, out: Mapping[str, RawEdge], problems: Problems
) -> dict[str, list[str]]:
    """The ports at which the node itself puts its edges."""
    named: dict[str, list[str]] = {}
    places: list[tuple[Path, Any, str]] = [(("error", "error_edge"), node.error_edge, "error")]
    if type is not None:
        for where, port in type.edge_ports(node.parameters).items():
            places.append((("parameters", *where), _at(node.parameters, where), port))
    for where, id, port in places:
        if not isinstance(id, str) or not id:
            continue  # none, or reported as a parameter of the wrong type
        if id in out:
            named.setdefault(id, []).append(port)
        else:
            message = f"{_name(where)!r} names {id!r}, which is not an edge out of {node.id!r}"
            problems.error("E024", message, (*node.path, *where), _meant(id, out))
    return named


def _ports(edge: RawEdge, named: list[str], problems: Problems) -> list[str]:
    fails = edge.is_error or edge.port == "error" or "error" in named
    succeeds = [port for port in dict.fromkeys(named) if port != "error"]
    if fails and succeeds:
        message = f"edge {edge.id!r} is both an error edge and at port {succeeds[0]!r} of {edge.src!r}"
        problems.error("E033", message, edge.path, "use two edges")
    return ["error"] if fails else succeeds or [edge.port or "out"]


def _edges(edge: RawEdge, ports: list[str]) -> list[Edge]:
    """An edge named at several ports becomes several; no id that is written holds a dot."""
    return [
        Edge(edge.id if index == 0 else f"{edge.id}.{port}", edge.src, edge.dst, port, edge.label)
        for index, port in enumerate(ports)
    ]


def _check_policy(
    node: RawNode, ports: Mapping[str, list[str]], out: Mapping[str, RawEdge], problems: Problems
) -> None:
    path = (*node.path, "error", "type")
    if node.error_type not in _POLICIES:
        message = f"the error policy of {node.id!r} is {node.error_type!r}; it can be halt, ignore or branch"
        problems.error("E025", message, path, _meant(node.error_type, _POLICIES))
        return
    fails = any("error" in ports[id] for id in out)
    if node.error_type == "branch" and not fails and not node.error_edge:
        hint = "name an edge in 'error_edge', or mark one with is_error: true"
        problems.error("E026", f"{node.id!r} branches on errors but has no error edge", path, hint)


def _check_followed(
    node: RawNode,
    type: type[NodeType],
    ports: Mapping[str, list[str]],
    out: Mapping[str, RawEdge],
    problems: Problems,
) -> None:
    for id, edge in out.items():
        port = ports[id][0]
        if port == "error" and node.error_type != "branch":
            message = f"edge {id!r} is never followed: {node.id!r} does not branch on errors"
            problems.warn("W003", message, edge.path, 'add "error": {"type": "branch"} to the node')
        if port == "error" or port in type.ports or (not type.ports and port != "out"):
            continue
        where = f"its ports are {', '.join(type.ports)}" if type.ports else "its parameters name its edges"
        message = f"edge {id!r} is never followed: {node.id!r} never ends at port {port!r}; {where}"
        problems.warn("W003", message, edge.path, _meant(port, type.ports))


def _at(value: Any, where: Path) -> Any:
    for part in where:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _name(where: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where[1:])[1:]


def _meant(word: str, known: Any) -> str | None:
    found = suggest(word, known)
    return f"did you mean {found!r}?" if found else None
