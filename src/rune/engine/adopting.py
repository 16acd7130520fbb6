"""Tasks that were not written by Rune: such a one is where its execution starts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from rune.core.errors import MessageError
from rune.core.ids import CHILD, derive, is_child
from rune.core.messages import NULL, Branch, Task, branches_of, encode, scope_of
from rune.core.operations import Commit, Open
from rune.core.ports import State
from rune.core.step import Step
from rune.core.workflow import Workflow
from rune.engine.values import Values

__all__ = ["WHOLE", "Adoption"]

WHOLE = 4096
"""Bytes up to which a definition travels with every Task, where messages are cheaper than State."""


class Adoption:
    """Gives Tasks written by hand what they lack."""

    def __init__(self, state: State, values: Values, clock: Callable[[], float]) -> None:
        self._state = state
        self._values = values
        self._clock = clock

    async def adopted(self, task: Task, flow: Workflow) -> Task:
        """A Task as Rune writes them; one written by hand is where its execution starts."""
        if task.step or task.twigs:
            return task
        if is_child(task.execution_id):
            raise MessageError(
                f"an execution_id that begins with '{CHILD}' is that of one that another execution calls"
            )
        branch = branches_of(task)[0]
        entry = "" if flow.entries == (task.current_node,) else task.current_node
        context = await self._values.fold(task.execution_id, branch.context)
        definition, whole = task.definition, task.workflow_definition
        if not definition and len(bytes(whole)) > WHOLE:
            definition, whole = await self._values.store(task.execution_id, bytes(whole)), NULL
        task = msgspec.structs.replace(
            task,
            workflow_definition=whole,
            definition=definition,
            step=branch.step,
            lineage_stack=branch.lineage,
            entry=entry,
            accumulated_context=context.inline(),
            refs=context.refs,
            started_at=task.started_at or self._clock(),
            epoch=self._state.epoch,
        )
        for depth in range(len(branch.lineage)):
            await self._open_by_hand(task, flow, branch, depth)
        return task

    async def _open_by_hand(self, task: Task, flow: Workflow, branch: Branch, depth: int) -> None:
        """Open the barrier that a frame of a lineage written by hand speaks of."""
        frame, outer = branch.lineage[depth], branch.lineage[:depth]
        paths = flow.paths(task.entry)
        gather = flow.nodes.get(paths.closer.get(frame.split_node_id, frame.split_node_id))
        if gather is None or frame.total_items is None:
            raise MessageError(f"lineage_stack[{depth}] names no split, or no total_items")
        resuming = msgspec.structs.replace(
            branch, step=derive(frame.barrier, "~gather"), lineage=outer, from_node=None
        )
        step = Step(flow, paths, gather, task, resuming, self._clock())
        details = Raw(msgspec.json.encode(frame.barrier))
        release = step.task_for(gather.id, resuming, phase="gather", details=details)
        total = frame.total_items
        opening = Open(frame.barrier, total, 1, encode(release), published=total)
        await self._state.apply(task.execution_id, [Commit(frame.barrier, scope_of(outer), [opening])])
