"""Workflows to test with, written as ways through them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from rune.core.context import Context, Layer
from rune.core.messages import Branch, Frame, Task
from rune.core.node import NodeType, Role, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.parameters import Dialect, compile_parameters
from rune.core.step import Step
from rune.core.workflow import Edge, ErrorPolicy, Node, Workflow

NOW = 1_800_000_000.0


class Plain(NodeType, kw_only=True):
    """Give what it is given."""

    name: ClassVar = "plain"
    pure: ClassVar = True
    effects: ClassVar = False

    of: Any = None

    async def run(self, context: StepContext) -> Outcome:
        return Done(self.of)


class Choice(Plain, kw_only=True):
    """Two ways to go on."""

    name: ClassVar = "choice"
    ports: ClassVar = ("true", "false")


class Scatter(Plain, kw_only=True):
    """Opens a scope."""

    name: ClassVar = "scatter"
    role: ClassVar = Role.SPLIT


class Gather(Plain, kw_only=True):
    """Closes a scope."""

    name: ClassVar = "gather"
    role: ClassVar = Role.GATHER

    timeout: float | None = None
    keep: bool = True

    def keeps_results(self) -> bool:
        return self.keep


class Meet(Plain, kw_only=True):
    """Joins branches."""

    name: ClassVar = "meet"
    role: ClassVar = Role.MERGE

    count: int | None = None
    timeout: float | None = None

    def need(self) -> int | None:
        return self.count


class Start(Plain, kw_only=True):
    """Starts executions."""

    name: ClassVar = "start"
    trigger: ClassVar = True


def node(id: str, type: type[NodeType] = Plain, /, *, error: str = "halt", **parameters: Any) -> Node:
    """A node with its parameters compiled."""
    compiled, problems = compile_parameters(type, parameters, dialect=Dialect(), path=())
    assert compiled is not None, problems
    return Node(
        id,
        id.title(),
        type,
        compiled,
        ErrorPolicy(error),
        trigger=type.trigger,
        deterministic=type.pure and compiled.deterministic,
    )


def graph(*ways: str, nodes: tuple[Node, ...] = ()) -> Workflow:
    """A workflow of ways such as `a > b > c` or `a:true > b`; nodes that are not given are plain.

    An edge is called after its ends: `a-b`, or `a-b-true` where it leaves from another port than `out`.
    """
    known = {node.id: node for node in nodes}
    edges: dict[str, Edge] = {}
    for way in ways:
        stops = [stop.strip() for stop in way.split(">")]
        for src, dst in pairwise(stops):
            (src_id, _, port), (dst_id, _, _) = src.partition(":"), dst.partition(":")
            id = f"{src_id}-{dst_id}" + (f"-{port}" if port else "")
            edges[id] = Edge(id, src_id, dst_id, port or "out")
        for id in (stop.partition(":")[0] for stop in stops):
            known.setdefault(id, node(id))
    return Workflow("wf", known.values(), edges.values())


def raw(value: Any) -> Raw:
    """A value as its JSON."""
    return Raw(msgspec.json.encode(value))


def raws(values: dict[str, Any]) -> dict[str, Raw]:
    """Values as their JSON."""
    return {key: raw(value) for key, value in values.items()}


def plain(values: Any) -> Any:
    """What raw values hold."""
    return msgspec.json.decode(msgspec.json.encode(values))


def frame(split: str, item: int, barrier: str = "b1", total: int = 3) -> Frame:
    """A frame as the engine writes it."""
    return Frame(split, item, f"exec_{split}_{item}", total, barrier)


def branch(
    step: str = "step1",
    context: dict[str, Any] | None = None,
    *,
    lineage: tuple[Frame, ...] = (),
    shared: dict[str, Any] | None = None,
    **rest: Any,
) -> Branch:
    """A branch that knows `context`."""
    known = Context(raws(context or {}), Layer(raws(shared or {})))
    return Branch(step, lineage, known, **rest)


def step(flow: Workflow, at: str, of: Branch | None = None, **rest: Any) -> Step:
    """A branch at a node."""
    of = of or branch()
    task = Task(
        workflow_id=flow.id,
        execution_id="exec",
        current_node=at,
        accumulated_context=of.context.inline(),
        lineage_stack=of.lineage,
        refs=of.context.refs,
        step=of.step,
        edge=of.edge,
        path=of.path,
        from_node=of.from_node,
        definition="def",
        started_at=NOW,
    )
    return Step(flow, flow.paths(), flow.nodes[at], task, of, NOW, **rest)
