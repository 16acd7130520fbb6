"""What a branch knew at a step, rebuilt from the history.

The history keeps each step's output, not what led to it. But a step's id follows from its parent's id and the
edge between them, so that the parent is found by trying the few steps that can have been it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from rune.core.context import Context, Layer, Ref
from rune.core.ids import derive
from rune.core.joining import merge_step
from rune.core.messages import Branch, Frame, scope_of
from rune.core.node import Role
from rune.core.scope import BranchScope, unwrapped
from rune.core.workflow import Edge, Node, Workflow
from rune.history import History
from rune.history.executions import Execution
from rune.history.steps import StepRecord
from rune.master.fanning import items_of

__all__ = ["Ancestry", "Known"]

_SIBLINGS = 500
"""Steps of one node in one scope that are looked at."""


class Known(Struct):
    """The values of a branch, and where it came from."""

    values: dict[str, Raw]
    from_node: str | None = None
    edge: str = ""
    writer: str = ""
    """The node that last wrote `$json`."""
    lost: tuple[str, ...] = ()
    """Nodes whose output is no more."""


class Ancestry:
    """Finds the way that led to a step of one execution."""

    def __init__(self, history: History, execution: Execution, flow: Workflow) -> None:
        self._history = history
        self._execution = execution
        self._flow = flow
        self._root = execution.root or execution.id
        self._siblings: dict[tuple[str, str, int], Sequence[StepRecord]] = {}

    def scope(self, step: StepRecord, known: Known) -> BranchScope:
        """The names that mean something at a step."""
        context = Context(known.values, writers=(known.writer, ""))
        branch = Branch(step.step, step.lineage, context, "", known.from_node, known.edge)
        layers: dict[Ref, Layer] = {}
        return BranchScope(self._flow, self._execution.id, branch, layers)

    async def known(self, step: StepRecord) -> Known | None:
        """What the branch knew when it came to the step; None if the way to it is not found."""
        way: list[StepRecord] = []
        at = step
        while True:
            start = await self._beginning(at)
            if start is not None:
                break
            parent = await self._parent(at)
            if parent is None:
                return None
            way.append(at)
            at = parent[0]
        for later in reversed(way):
            edge = (await self._parent(later) or (at, None))[1]
            start = await self._after(start, at, edge)
            at = later
        return start

    # --- where a way begins ---

    async def _beginning(self, step: StepRecord) -> Known | None:
        node = self._flow.nodes.get(step.node_id)
        if node is None:
            return None
        return (
            self._entered(step, node)
            or await self._joined(step, node)
            or await self._gathered(step, node)
            or await self._split(step)
        )

    def _entered(self, step: StepRecord, node: Node) -> Known | None:
        """An execution starts with it."""
        if step.lineage or node.id not in self._flow.entries:
            return None
        edge = next((e for e in self._flow.incoming[node.id] if self._flow.nodes[e.src].trigger), None)
        if step.step != derive(derive(self._root, "~start"), edge.id if edge else node.id):
            return None
        trigger = self._execution.input or Raw(b"{}")
        return Known({"$trigger": trigger}, edge.src if edge else None, edge.id if edge else "")

    async def _joined(self, step: StepRecord, node: Node) -> Known | None:
        """A merge: what its branches brought, in the order of its edges."""
        if node.role is not Role.MERGE or step.step != merge_step(
            self._root, scope_of(step.lineage), node.id
        ):
            return None
        whole = Known({"$trigger": self._execution.input or Raw(b"{}")})
        for edge in self._flow.incoming[node.id]:
            for before in await self._steps(edge.src, step.lineage):
                known = await self.known(before) if _took(before, edge) else None
                if known is not None:
                    brought = await self._after(known, before, edge)
                    whole.values |= brought.values
                    whole.lost += brought.lost
        return whole

    async def _gathered(self, step: StepRecord, node: Node) -> Known | None:
        """What follows a fan-out: the split's context."""
        splits = [split for split, gather in self._flow.paths().closer.items() if gather == node.id]
        for split in splits or ([node.id] if node.role is Role.SPLIT else []):
            for opened in await self._steps(split, step.lineage):
                if derive(opened.step, "~gather") == step.step:
                    known = await self.known(opened)
                    return None if known is None else await self._after(known, opened, None)
        return None

    async def _split(self, step: StepRecord) -> Known | None:
        """The first step of an item: the split's context, and the item."""
        if not step.lineage:
            return None
        *outer, frame = step.lineage
        for edge in self._flow.outgoing.get(frame.split_node_id, ()):
            if derive(frame.barrier, edge.id, str(frame.item_index)) == step.step:
                opened = await self._history.steps.get(self._execution.id, frame.barrier)
                known = await self.known(opened) if opened is not None else None
                if known is None or opened is None:
                    return None
                inside = await self._after(known, opened, edge)
                inside.values |= await self._item(opened, known, frame, len(outer))
                return inside
        return None

    async def _item(self, split: StepRecord, known: Known, frame: Frame, depth: int) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        if depth and "$item" in known.values:
            found[f"$item.{depth - 1}"] = known.values["$item"]
        node = self._flow.nodes[split.node_id]
        items = await items_of(node, self.scope(split, known), self._execution, split.step)
        if items is not None and frame.item_index < len(items):
            found["$item"] = Raw(msgspec.json.encode(items[frame.item_index]))
        return found

    # --- from step to step ---

    async def _parent(self, step: StepRecord) -> tuple[StepRecord, Edge] | None:
        for edge in self._flow.incoming.get(step.node_id, ()):
            for before in await self._steps(edge.src, step.lineage):
                if derive(before.step, edge.id) == step.step:
                    return before, edge
        return None

    async def _steps(self, node: str, lineage: tuple[Frame, ...]) -> Sequence[StepRecord]:
        """The steps of a node in one scope."""
        scope = (lineage[-1].barrier, lineage[-1].item_index) if lineage else ("", 0)
        found = self._siblings.get((node, *scope))
        if found is None:
            page = await self._history.steps.list(self._execution.id, node=node, scope=scope, limit=_SIBLINGS)
            found = self._siblings[node, *scope] = list(page.items)
        return found

    async def _after(self, known: Known, step: StepRecord, edge: Edge | None) -> Known:
        """What a branch knows when it has left a step."""
        values, writer, lost = dict(known.values), known.writer, known.lost
        output = await self._output(step)
        name = f"${step.node_id}"
        if step.status == "failed" and output is None:
            error = msgspec.json.encode(step.error)
            values |= {name: Raw(b'{"error":' + error + b"}"), "$error": Raw(error)}
        elif output is None:
            values.pop(name, None)
            lost = (*lost, step.node_id)
        else:
            values[name] = output
            if (step.details or {}).get("working"):
                values["$json"], writer = unwrapped(output), step.node_id
        return Known(values, step.node_id if edge else known.from_node, edge.id if edge else "", writer, lost)

    async def _output(self, step: StepRecord) -> Raw | None:
        if step.output is not None or step.output_hash is None:
            return step.output
        data = await self._history.values.get(self._execution.id, step.output_hash)
        return None if data is None else Raw(data)


def _took(step: StepRecord, edge: Edge) -> bool:
    """Whether a step left along an edge."""
    if step.status == "failed":
        return edge.is_error or step.port is not None
    return step.status == "success" and edge.port in set(_ports(step))


def _ports(step: StepRecord) -> Iterator[str]:
    yield from (step.port or "").split(",")
