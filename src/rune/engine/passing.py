"""The commonest steps: those that are done at once, and those that may share a call to State.

A pure node with one successor needs no State, and has nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rune.core.context import Layer, Ref
from rune.core.messages import Task, branches_of
from rune.core.node import Role
from rune.core.outcome import Done, Outcome
from rune.core.plan import pass_on
from rune.core.scope import context_names
from rune.core.step import Limits, Step
from rune.engine.fanout import single
from rune.engine.flows import Flows
from rune.engine.running import Runner
from rune.engine.statuses import Statuses
from rune.engine.values import INLINE, Values

__all__ = ["Passing"]


class Passing:
    """Knows such steps; whatever turns out to be more than that is left as if nothing had been done."""

    def __init__(
        self,
        flows: Flows,
        runner: Runner,
        values: Values,
        statuses: Statuses,
        limits: Limits,
        clock: Callable[[], float],
    ) -> None:
        self._flows = flows
        self._runner = runner
        self._values = values
        self._statuses = statuses
        self._limits = limits
        self._clock = clock

    def successor(self, task: Task) -> Task | None:
        """The Task that follows a plain step, which is run or wakes, and told of; None for all others."""
        step = self._step(task, Role.PLAIN)
        outcome = self._outcome(step) if step is not None else None
        follow = pass_on(step, outcome) if step is not None and outcome is not None else None
        if step is None or follow is None or type(outcome) is not Done:
            return None
        ((edge, branch),) = follow.children
        if branch.context.size > INLINE:
            return None
        self._statuses.passed(step, outcome)
        return single(task, edge, branch)

    def arrival(self, task: Task) -> Step | None:
        """The step of an item that reaches its aggregator; None for all others."""
        return self._step(task, Role.GATHER) if task.phase == "run" else None

    def _step(self, task: Task, role: Role) -> Step | None:
        """The step of a Task of one branch at a pure node, or at one where it has slept."""
        if not task.step or task.twigs or task.weight > INLINE:
            return None
        flow = self._flows.known(task)
        node = flow.nodes.get(task.current_node) if flow is not None else None
        if flow is None or node is None or node.role is not role or (node.pool and not task.pool):
            return None
        if task.phase != "wake" and not (task.phase == "run" and node.type.pure and node.deterministic):
            return None
        (branch,) = branches_of(task)
        return Step(flow, flow.paths(task.entry), node, task, branch, self._clock(), self._limits)

    def _outcome(self, step: Step) -> Outcome | None:
        """What comes of running a step, or of waking it; None unless all it may read is at hand."""
        if step.task.phase == "wake":
            output = step.branch.context.own.get(f"${step.node.id}")
            return Done(output) if output is not None else None
        layers = self._layers(step)
        if layers is None:
            return None
        return self._runner.try_pure(step, layers, None, step.now, self._values).outcome

    def _layers(self, step: Step) -> Mapping[Ref, Layer] | None:
        """The stored layers that the step may read; None unless all of them are at hand."""
        context = step.branch.context
        if not context.refs:
            return {}
        wanted = context_names(step.node.parameters.names, step.flow, step.branch)
        return self._values.at_hand(context.needs(wanted))
