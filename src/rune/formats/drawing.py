"""A workflow as a picture: Mermaid for documents, an indented tree for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rune.core.node import Role
from rune.core.paths import scoping
from rune.core.workflow import Edge, Node, Workflow

__all__ = ["mermaid", "text"]

_SHAPES = {
    Role.PLAIN: ('["', '"]'),
    Role.SPLIT: ('[/"', '"\\]'),
    Role.GATHER: ('[\\"', '"/]'),
    Role.MERGE: ('{{"', '"}}'),
}


def mermaid(flow: Workflow) -> str:
    """The workflow as a Mermaid flowchart, what lies between a split and its aggregator in a box."""
    numbers = {id: f"n{number}" for number, id in enumerate(flow.nodes)}
    lines = ["flowchart TD"]
    scope = scoping(flow).scope
    inside: dict[tuple[str, ...], list[str]] = {}
    for id, node in flow.nodes.items():
        # An aggregator closes its split's box from outside.
        at = scope.get(id, ())
        inside.setdefault(at[:-1] if node.role is Role.GATHER else at, []).append(id)
    lines += _boxes(flow, (), inside, numbers, "  ")
    for edge in flow.edges.values():
        arrow = "-.->" if edge.is_error else "-->"
        label = f'|"{_escape(_edge_label(edge))}"|' if _edge_label(edge) else ""
        lines.append(f"  {numbers[edge.src]} {arrow}{label} {numbers[edge.dst]}")
    return "\n".join(lines) + "\n"


def _boxes(
    flow: Workflow,
    scope: tuple[str, ...],
    inside: dict[tuple[str, ...], list[str]],
    numbers: dict[str, str],
    indent: str,
) -> Iterator[str]:
    for id in inside.get(scope, ()):
        node = flow.nodes[id]
        opening, closing = _shape(node)
        yield f"{indent}{numbers[id]}{opening}{_escape(_title(node))}{closing}"
        if node.role is Role.SPLIT and (*scope, id) in inside:
            yield f'{indent}subgraph s{numbers[id]}["each item of {_escape(node.name)}"]'
            yield from _boxes(flow, (*scope, id), inside, numbers, indent + "  ")
            yield f"{indent}end"


def _shape(node: Node) -> tuple[str, str]:
    if node.trigger:
        return '(["', '"])'
    if node.role is Role.PLAIN and node.type.ports != ("out",):
        return '{"', '"}'
    return _SHAPES[node.role]


def _title(node: Node) -> str:
    return f"{node.name}\n{node.type.name}"


def _edge_label(edge: Edge) -> str:
    port = "" if edge.port == "out" else edge.port
    return ": ".join(part for part in (port, edge.label) if part)


def _escape(label: str) -> str:
    """Text that Mermaid neither reads as its own marks nor as HTML."""
    special = {
        "\n": "<br/>",
        '"': "#quot;",
        "<": "#lt;",
        ">": "#gt;",
        "&": "#amp;",
        "#": "#35;",
        "\\": "#92;",
    }
    special |= {"`": "#96;", "|": "#124;", "{": "#123;", "}": "#125;", "[": "#91;", "]": "#93;"}
    return "".join(special.get(c, c if c.isprintable() else " ") for c in label)


def text(flow: Workflow) -> str:
    """The workflow as a tree: one line a node, blocks for ports and for what runs for each item."""
    return "\n".join(_Tree(flow).lines) + "\n"


class _Tree:
    """Writes every node once: where ways meet, after the last of them."""

    def __init__(self, flow: Workflow) -> None:
        self.lines: list[str] = []
        self._flow = flow
        self._closer = scoping(flow).closer
        self._missing = {id: len(edges) for id, edges in flow.incoming.items()}
        self._ready: list[str] = []
        # What is still to write, last first: deep graphs need no deep recursion.
        self._todo: list[Callable[[], None]] = []
        starts = [id for id, edges in flow.incoming.items() if not edges]
        self._push([*(partial(self._node, id, "") for id in starts), partial(self._meet, "")])
        while self._todo:
            self._todo.pop()()

    def _push(self, work: list[Callable[[], None]]) -> None:
        self._todo.extend(reversed(work))

    def _node(self, id: str, indent: str) -> None:
        node = self._flow.nodes[id]
        self.lines.append(indent + self._describe(node))
        edges = self._flow.outgoing[id]
        if node.role is not Role.SPLIT:
            self._push(self._block(edges, indent))
            return
        body = self._block([edge for edge in edges if not edge.is_error], indent + "│ ")
        error = self._block([edge for edge in edges if edge.is_error], indent)
        self._push([*body, partial(self._close, id, indent), *error])

    def _block(self, edges: list[Edge], indent: str) -> list[Callable[[], None]]:
        if len(edges) == 1 and not _edge_label(edges[0]):
            return [partial(self._edge, edges[0], indent)]
        work: list[Callable[[], None]] = []
        for edge in edges:
            label = f"{indent}├─ {_printable(_edge_label(edge) or 'also')}:"
            work += [partial(self.lines.append, label), partial(self._edge, edge, f"{indent}│  ")]
        return [*work, partial(self._meet, indent)]

    def _edge(self, edge: Edge, indent: str) -> None:
        dst = edge.dst
        self._missing[dst] -= 1
        alone = len(self._flow.incoming[dst]) == 1
        closes = dst in self._closer.values()
        if alone and not closes:
            self._push([partial(self._node, dst, indent)])
        if not alone:
            self.lines.append(f"{indent}→ {dst}")
        if not alone and not closes and not self._missing[dst]:
            self._ready.append(dst)

    def _meet(self, indent: str) -> None:
        """What follows where ways have met stands at the level where they parted."""
        ready, self._ready = self._ready, []
        if ready:
            self._push([*(partial(self._node, id, indent) for id in ready), partial(self._meet, indent)])

    def _close(self, split: str, indent: str) -> None:
        """The aggregator stands at its split's level, after all that runs for an item."""
        if split in self._closer:
            self._push([partial(self._node, self._closer[split], indent)])

    def _describe(self, node: Node) -> str:
        words = [node.id]
        if node.name != node.id:
            words.append(f'"{_printable(node.name)}"')
        words.append(f"({node.type.name})")
        if node.role is Role.MERGE:
            words.append("⇐ " + ", ".join(dict.fromkeys(e.src for e in self._flow.incoming[node.id])))
        if node.error.type == "ignore":
            words.append("[errors ignored]")
        return " ".join(words)


def _printable(label: str) -> str:
    return "".join(c if c.isprintable() else " " for c in label)
