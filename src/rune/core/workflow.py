"""The immutable graph that both formats compile to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from rune.core.node import NodeType, Role
from rune.core.paths import Paths

__all__ = ["Edge", "ErrorPolicy", "Job", "Node", "Retry", "Workflow"]


Port = str | tuple[str, ...] | None
"""Where a node ends: at one port, at several, or at none."""


class ErrorPolicy(msgspec.Struct, frozen=True):
    """What a failure of this node means: `halt` the scope, `ignore` it, or `branch` to the error edges."""

    type: str = "halt"


class Retry(msgspec.Struct, frozen=True):
    """How often a failed step is tried again, and how long to rest in between."""

    attempts: int = 1
    delay: float = 0.0
    backoff: str = "fixed"
    max_delay: float = 3600.0

    def rest(self, attempt: int) -> float:
        """Seconds between the failure of `attempt` (from 1) and the next one."""
        factors = {"fixed": 1.0, "linear": float(attempt), "exponential": 2.0 ** min(attempt - 1, 32)}
        return min(self.delay * factors[self.backoff], self.max_delay)


class Job(msgspec.Struct, frozen=True):
    """How long a step may wait to be run, and how it is given up when its workers die; None is as usual."""

    queue: float | None = None
    """Seconds that an item may wait in the queue before it starts."""
    lease: float | None = None
    """Seconds without a sign of life after which its worker is taken for dead."""
    starts: int | None = None
    """Starts in all before it is given up."""


class Edge(msgspec.Struct, frozen=True):
    """An arrow from a node's port to a node."""

    id: str
    src: str
    dst: str
    port: str = "out"
    label: str = ""
    pool: str = ""
    """The pool of the node it leads to; filled in by the Workflow."""

    @property
    def is_error(self) -> bool:
        return self.port == "error"


class Node(msgspec.Struct, frozen=True):
    """One box of the graph, with its parameters compiled once."""

    id: str
    name: str
    type: type[NodeType]
    parameters: Any
    """A compiled Template of the parameters."""
    error: ErrorPolicy = ErrorPolicy()
    retry: Retry | None = None
    credentials: str | None = None
    trigger: bool = False
    deterministic: bool = True
    """A second run gives the same outcome: the type is pure and no expression asks the clock."""
    pool: str = ""
    """The workers that run it; empty is everybody."""
    job: Job = Job()

    @property
    def role(self) -> Role:
        return self.type.role


class _Carried(msgspec.Struct):
    """What a definition of either format carries of others."""

    workflows: dict[str, msgspec.Raw] = {}


class Workflow:
    """Nodes and edges, and what follows from them, worked out once."""

    def __init__(
        self,
        id: str,
        nodes: Iterable[Node],
        edges: Iterable[Edge],
        *,
        name: str = "",
        definition: bytes = b"",
    ) -> None:
        self.id = id
        self.name = name or id
        self.definition = definition
        self.nodes: Mapping[str, Node] = {node.id: node for node in nodes}
        self.edges: Mapping[str, Edge] = {edge.id: self._led(edge) for edge in edges}
        self.outgoing: dict[str, list[Edge]] = {id: [] for id in self.nodes}
        self.incoming: dict[str, list[Edge]] = {id: [] for id in self.nodes}
        for edge in self.edges.values():
            self.outgoing[edge.src].append(edge)
            self.incoming[edge.dst].append(edge)
        self._paths: dict[str, Paths] = {}
        self._routes: dict[
            tuple[str, str | tuple[str, ...] | None], tuple[tuple[Edge, ...], tuple[Edge, ...]]
        ] = {}

    def _led(self, edge: Edge) -> Edge:
        node = self.nodes.get(edge.dst)
        return msgspec.structs.replace(edge, pool=node.pool) if node and node.pool else edge

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The nodes an execution starts with: the triggers' successors, else the nodes nothing leads to."""
        triggers = [node.id for node in self.nodes.values() if node.trigger]
        if triggers:
            return tuple(dict.fromkeys(edge.dst for t in triggers for edge in self.outgoing[t]))
        return tuple(id for id, edges in self.incoming.items() if not edges)

    @cached_property
    def called(self) -> Mapping[str, msgspec.Raw]:
        """The definitions of the workflows that this one calls, by the names it has for them."""
        return msgspec.json.decode(self.definition, type=_Carried).workflows if self.definition else {}

    def paths(self, entry: str = "") -> Paths:
        """Scopes and path counts as seen from `entry`, or from the ordinary entries."""
        found = self._paths.get(entry)
        if found is None:
            found = self._paths[entry] = Paths(self, (entry,) if entry else self.entries)
        return found

    def route(self, node: str, port: Port) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
        """The edges that are followed when `node` ends at `port`, and those that are not."""
        found = self._routes.get((node, port))
        if found is None:
            edges = self.outgoing[node]
            ports = port if isinstance(port, tuple) else (port,)
            taken = tuple(e for e in edges if e.port in ports)
            found = self._routes[node, port] = (taken, tuple(e for e in edges if e.port not in ports))
        return found
