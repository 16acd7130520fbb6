"""What a step has to say to the joins of its scope: who they are, when they open, and who will not come."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from rune.core.context import Context
from rune.core.ids import derive
from rune.core.messages import Branch, Frame, Task, encode, scope_of
from rune.core.node import Role
from rune.core.operations import Operation, Place, Rule, Skip, Timer, scope_key
from rune.core.step import Deadline, Step
from rune.core.workflow import Edge, Node

__all__ = ["losses", "merge_step", "merge_task", "node_of", "rule_of", "timeout_of"]


def _merge_id(task: Task, lineage: tuple[Frame, ...], node: str) -> str:
    """The step that a merge runs as, once it opens."""
    return merge_step(task.root or task.execution_id, scope_of(lineage), node)


def merge_step(root: str, place: Place, node: str) -> str:
    """The step that a merge in this scope runs as, once it opens."""
    return derive(root, scope_key(place), node)


def losses(step: Step, teller: str, dead: Iterable[Edge]) -> list[Operation]:
    """One Skip for each merge behind each dead edge, in the order of the graph."""
    skips = [
        Skip(rule_of(step, step.flow.nodes[merge]), f"{teller}!{edge.id}", weight)
        for edge in dead
        for merge, weight in step.paths.let_down(edge).items()
    ]
    skips.sort(key=lambda skip: step.paths.order[skip.rule.node])
    return list(skips)


def rule_of(step: Step, node: Node, *, arriving: bool = False) -> Rule:
    """When the merge at this node, in this scope, opens."""
    merge = _merge_id(step.task, step.branch.lineage, node.id)
    parameters = node.parameters.constant
    return Rule(
        merge,
        node.id,
        step.paths.expected[node.id],
        parameters.need(),
        timeout_of(step, node.id, merge) if arriving else None,
    )


def node_of(step: Step, merge: str) -> str:
    """The node of a merge of this scope."""
    lineage = step.branch.lineage
    return next(id for id in step.paths.expected if _merge_id(step.task, lineage, id) == merge)


def merge_task(step: Step, merge: str) -> Task:
    """The Task of a merge that has opened."""
    branch = Branch(merge, step.branch.lineage, Context({}))
    return step.task_for(node_of(step, merge), branch, phase="gather")


def timeout_of(step: Step, node: str, target: str) -> Timer | None:
    """The time-out of a join: its `timeout` in full, else the default, which counts idle time only."""
    if step.flow.nodes[node].role is Role.SPLIT:
        return None  # Without an aggregator nobody waits.
    timeout = getattr(step.flow.nodes[node].parameters.constant, "timeout", None)
    branch = msgspec.structs.replace(step.branch, step=derive(target, "~expire"), context=Context({}))
    details = Deadline(target, None if timeout is not None else step.limits.timeout)
    task = step.task_for(node, branch, phase="expire", details=Raw(msgspec.json.encode(details)))
    due = step.now + (timeout if timeout is not None else step.limits.timeout)
    return Timer(task.step, due, encode(task), sleeping=False)
