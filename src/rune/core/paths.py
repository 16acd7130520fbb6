"""Scopes, path counts and dead paths: what the graph alone tells about joins (DESIGN rules 7 to 9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rune.core.node import Role

if TYPE_CHECKING:
    from rune.core.workflow import Edge, Workflow

__all__ = ["Paths", "Scoping", "cycle", "scoping", "topological"]


def topological(flow: Workflow) -> list[str]:
    """The nodes in an order in which every edge leads forward; nodes on a cycle are left out."""
    waiting = {id: len(edges) for id, edges in flow.incoming.items()}
    order = [id for id, n in waiting.items() if n == 0]
    for id in order:
        for edge in flow.outgoing[id]:
            waiting[edge.dst] -= 1
            if waiting[edge.dst] == 0:
                order.append(edge.dst)
    return order


def cycle(flow: Workflow) -> list[str]:
    """The nodes of one cycle, or nothing."""
    rest = set(flow.nodes) - set(topological(flow))
    # What remains may also hang behind a cycle: walk backwards, which must come round.
    if not rest:
        return []
    seen: list[str] = []
    at = min(rest)
    while at not in seen:
        seen.append(at)
        at = next(e.src for e in flow.incoming[at] if e.src in rest)
    return seen[seen.index(at) :][::-1]


class Scoping:
    """Which splits enclose each node, which aggregator closes each split, and what contradicts itself."""

    def __init__(self) -> None:
        self.scope: dict[str, tuple[str, ...]] = {}
        self.via: dict[str, str] = {}
        """The node through which a node got its scope."""
        self.closer: dict[str, str] = {}
        """Split -> the aggregator that closes it."""
        self.clashes: list[tuple[str, str, str]] = []
        """(node, one way to it, another way) where the two give it different scopes."""
        self.unopened: list[str] = []
        """Aggregators outside any split."""
        self.doubled: list[tuple[str, str, str]] = []
        """(split, aggregator, another aggregator) where two close one split."""


def scoping(flow: Workflow) -> Scoping:
    """Give every node its one static scope."""
    found = Scoping()
    order = topological(flow)
    known = set(order)
    for id in order:
        found.scope.setdefault(id, ())
        inside = _inside(flow, id, found)
        for edge in flow.outgoing[id]:
            # An error edge leaves from where the node itself stands: before its items, or after them.
            outer = found.scope[id]
            if flow.nodes[id].role is Role.GATHER:
                outer = inside
            scope = outer if edge.is_error else inside
            first = found.scope.setdefault(edge.dst, scope)
            found.via.setdefault(edge.dst, id)
            if first != scope:
                found.clashes.append((edge.dst, found.via[edge.dst], id))
            if edge.dst not in known:
                # It is on a cycle, or behind one: its turn comes after those that wait for nobody.
                known.add(edge.dst)
                order.append(edge.dst)
    return found


def _inside(flow: Workflow, id: str, found: Scoping) -> tuple[str, ...]:
    """The scope of what follows a node."""
    scope = found.scope[id]
    role = flow.nodes[id].role
    if role is Role.SPLIT:
        return (*scope, id)
    if role is not Role.GATHER:
        return scope
    if not scope:
        found.unopened.append(id)
        return ()
    first = found.closer.setdefault(scope[-1], id)
    if first != id:
        found.doubled.append((scope[-1], first, id))
    return scope[:-1]


class Paths:
    """How many arrivals each merge has to expect, and which merges an untaken edge lets down.

    A path count says how many branches can come along an edge in one run of its scope. It starts anew,
    with one, at each entry, at each split (for its items) and at each merge; a fan-out counts as one node
    with its aggregator.
    """

    def __init__(self, flow: Workflow, entries: Iterable[str]) -> None:
        self._flow = flow
        # Nodes on cycles (playbooks have them, merges they have not) come last, in any order.
        ordered = dict.fromkeys([*topological(flow), *flow.nodes])
        self.order = {id: i for i, id in enumerate(ordered)}
        self.closer: Mapping[str, str] = scoping(flow).closer
        self.expected: dict[str, int] = {}
        self._count(set(entries))
        self._reached: dict[str, Mapping[str, int]] = {}

    def _count(self, entries: set[str]) -> None:
        flow = self._flow
        runs: Counter[str] = Counter()
        opened = {gather: split for split, gather in self.closer.items()}
        for id in self.order:
            role = flow.nodes[id].role
            if id in entries:
                runs[id] += 1
            if role is Role.GATHER:
                # Started by hand inside the body, the split itself never ran.
                runs[id] = runs[opened.get(id, "")] or min(runs[id], 1)
            if role is Role.MERGE:
                self.expected[id] = runs[id]
                runs[id] = min(runs[id], 1)
            for edge in flow.outgoing[id]:
                inner = role is Role.SPLIT and not edge.is_error
                runs[edge.dst] += min(runs[id], 1) if inner else runs[id]

    def leads_to(self, one: str, other: str) -> bool:
        """Whether a way leads from one node to another."""
        seen, todo = {one}, [one]
        while todo:
            for edge in self._flow.outgoing.get(todo.pop(), ()):
                if edge.dst == other:
                    return True
                if edge.dst not in seen:
                    seen.add(edge.dst)
                    todo.append(edge.dst)
        return False

    def let_down(self, edge: Edge) -> Mapping[str, int]:
        """The merges a branch along this edge would have reached, and how many arrivals each loses."""
        found = self._reached.get(edge.id)
        if found is None:
            found = self._reached[edge.id] = self._walk(edge.dst)
        return found

    def _walk(self, start: str) -> Mapping[str, int]:
        flow = self._flow
        lost: Counter[str] = Counter()
        passing: Counter[str] = Counter({start: 1})
        for id in sorted(self._forward(start), key=self.order.__getitem__):
            n = passing.pop(id, 0)
            if not n:
                continue
            if flow.nodes[id].role is Role.MERGE:
                lost[id] += n
                continue
            for edge in self.beyond(id):
                passing[edge.dst] += n
        return lost

    def _forward(self, start: str) -> set[str]:
        """Nodes a dead branch passes, up to and with the merges that stop it."""
        seen = {start}
        todo = [start]
        while todo:
            id = todo.pop()
            if self._flow.nodes[id].role is Role.MERGE:
                continue
            for edge in self.beyond(id):
                if edge.dst not in seen:
                    seen.add(edge.dst)
                    todo.append(edge.dst)
        return seen

    def beyond(self, id: str) -> list[Edge]:
        """The edges that lead on, in its scope, from a node or from a fan-out as a whole."""
        edges = self._flow.outgoing[id]
        role = self._flow.nodes[id].role
        if role is Role.GATHER:
            return []
        if role is Role.SPLIT:
            gather = self.closer.get(id)
            after = self._flow.outgoing[gather] if gather else []
            return [e for e in edges if e.is_error] + after
        return edges
