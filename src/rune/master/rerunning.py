"""Where to look for what stands in an execution made of another, and what lies behind what runs again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from rune.core.node import Role
from rune.core.workflow import Node, Workflow
from rune.history import History
from rune.history.steps import StepRecord
from rune.master.standing import LABEL, Selection, Wish, behind, wish_of

__all__ = ["Generation", "generations"]

_PAGE = 1000
_NOT_DONE = ("failed", "running", "stopped", "waiting")

_LOST = """
    SELECT DISTINCT s.node_id FROM history_step s
    WHERE s.execution_id = $1 AND s.status IN ('success', 'failed') AND (
      (s.output_hash IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM history_value v WHERE v.execution_id = $1 AND v.hash = s.output_hash))
      OR (s.sets_hash IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM history_value v WHERE v.execution_id = $1 AND v.hash = s.sets_hash)))
"""
_EDITED = "SELECT node_id FROM history_split WHERE execution_id = $1 AND barrier = $2"


class Generation(Struct, frozen=True):
    """An execution whose steps may stand in one that is made of it, or of another that was made of it."""

    execution: str
    selections: Sequence[Selection]
    """What is to stand in the new execution, and in each one that was made on the way to it."""
    late: frozenset[str]
    """The nodes whose steps come to be met only later, if at all, where that matters."""

    def stands(self, step: StepRecord) -> bool:
        """Whether a step has an outcome that all of them kept."""
        return all(selection.stands(step) for selection in self.selections)


async def generations(history: History, parent: str, wish: Wish, flow: Workflow) -> list[Generation]:
    """The executions in which there may be what stands, the latest first; none if the parent is not known.

    One that stopped half-way has not met all that stood in it: that is found in what it was made of.
    """
    wishes = [wish]
    found: list[tuple[str, list[Selection]]] = []
    while True:
        definition = await history.executions.definition(parent)
        if definition is None:
            break
        found.append((parent, [Selection(one, flow, definition.encode()) for one in wishes]))
        made = await history.executions.get(parent)
        if made is None or made.parent is None or LABEL not in made.labels:
            break
        if made.status == "completed" or definition.encode() != flow.definition:
            break
        wishes, parent = [*wishes, wish_of(made)], made.parent
    setters = {node for execution, _ in found for node in await history.steps.setters(execution)}
    late: frozenset[str] = frozenset()
    several = []
    for (execution, selections), by in zip(found, wishes, strict=False):
        late |= await _late_nodes(history, execution, by, selections[-1], flow, setters)
        for selection in selections:
            selection.late = late
        several.append(Generation(execution, selections, late))
    return several


async def _late_nodes(
    history: History,
    parent: str,
    wish: Wish,
    selection: Selection,
    flow: Workflow,
    setters: Collection[str],
) -> frozenset[str]:
    """The nodes behind those that run again, if any of them has set variables.

    Steps of theirs may stand and yet not be met, for what runs again may go another way.
    """
    if not setters:
        return frozenset()
    lost = {row["node_id"] for row in await history.database.fetch(_LOST, parent)}
    undone = lost | await _failed(history, parent, selection)
    # What is only computed again comes to the same, unless what it depends on does not.
    again = {id for id in undone & flow.nodes.keys() if not _is_computed(flow.nodes[id])} | selection.again
    if wish.given:
        again |= {node.id for node in flow.nodes.values() if _may_differ(node, flow)}
    if wish.edits:
        again |= {row["node_id"] for row in await history.database.fetch(_EDITED, parent, wish.barrier)}
    edges = [edge for id in again & flow.nodes.keys() for edge in flow.outgoing[id]]
    late = frozenset(id for edge in edges for id in behind(flow, edge.dst))
    return late if late.intersection(setters) else frozenset()


async def _failed(history: History, parent: str, selection: Selection) -> set[str]:
    """The nodes of steps that came to no end that stands."""
    found: set[str] = set()
    last: StepRecord | None = None
    while True:
        page = await history.steps.scan(parent, status=_NOT_DONE, after=last, limit=_PAGE)
        found |= {step.node_id for step in page if not selection.stands(step)}
        if len(page) < _PAGE:
            return found
        last = page[-1]


def _is_computed(node: Node) -> bool:
    """Whether steps of a node are computed again, rather than put on record."""
    return node.deterministic or node.role is not Role.PLAIN


def _may_differ(node: Node, flow: Workflow) -> bool:
    """Whether a node that is computed again may go another way where the input is another."""
    if node.role is Role.SPLIT:
        return bool(node.parameters.names)
    ports = {edge.port for edge in flow.outgoing[node.id] if not edge.is_error}
    return _is_computed(node) and len(ports) > 1
