"""One branch at one node, and what there is to publish once State agrees with what follows it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec
from msgspec import Raw, Struct

from rune.core.context import NOBODY, Ref, Writers
from rune.core.messages import NULL, Branch, Task, decode_task, scope_of
from rune.core.operations import Answer, Commit, Operation
from rune.core.outcome import Call, FanOut, Outcome
from rune.core.paths import Paths
from rune.core.workflow import Edge, Node, Workflow

__all__ = ["Deadline", "Follow", "Limits", "Plan", "Snapshot", "Step", "followed"]

Plan = Generator[Sequence[Operation], Answer, "Follow"]
"""A decision: it yields operations, is sent the Answer, and returns what follows."""


class Snapshot(Struct, frozen=True, omit_defaults=True):
    """A branch's context as State keeps it."""

    context: dict[str, Raw]
    refs: tuple[Ref, ...] = ()
    path: str = ""
    from_node: str | None = None
    writers: Writers = NOBODY


class Limits(Struct, frozen=True):
    """The numbers that decisions depend on."""

    timeout: float = 300.0
    """Seconds without progress after which a join without a `timeout` of its own gives up."""


class Deadline(Struct, frozen=True):
    """What the Task of a time-out has to know."""

    target: str
    idle: float | None
    """Seconds without progress; None: it was given, and counts in full."""


class Step(Struct, frozen=True, gc=False):
    """One branch at one node of one execution."""

    flow: Workflow
    paths: Paths
    node: Node
    task: Task
    branch: Branch
    now: float
    limits: Limits = Limits()
    recorded: bytes | None = None
    """The outcome as it has to be recorded, where a second run might give another."""
    fence: int = 0
    turn: int = 0
    """Of one with a record that sets variables: when it did, among all that do."""

    def task_for(self, node: str, branch: Branch, **changes: object) -> Task:
        """A Task of this execution for one branch."""
        return msgspec.structs.replace(
            self.task,
            current_node=node,
            pool=self.flow.nodes[node].pool,
            accumulated_context=branch.context.inline(),
            refs=branch.context.refs,
            weight=branch.context.size,
            writers=branch.context.writers,
            lineage_stack=branch.lineage,
            from_node=branch.from_node,
            step=branch.step,
            edge=branch.edge,
            path=branch.path,
            twigs=(),
            **{"phase": "run", "attempt": 1, "cursor": None, "details": NULL, "expires": 0.0, **changes},
        )

    def again(self, **changes: object) -> Task:
        """The Task of this branch alone, once more."""
        if self.task.phase == "refill":
            return msgspec.structs.replace(self.task, **changes)
        return self.task_for(self.node.id, self.branch, **changes)

    def commit(self, operations: Sequence[Operation]) -> Commit:
        """What this step asks of State."""
        task, place = self.task, scope_of(self.branch.lineage)
        reads = task.step if task.phase == "refill" else ""
        return Commit(self.branch.step, place, operations, task.started_at, reads)


class Follow(Struct, gc=False):
    """What there is to publish and to tell, once State agrees."""

    children: list[tuple[Edge, Branch]] = []
    tasks: list[Task] = []
    """Tasks for joins that this step opened, and refills."""
    fan_out: FanOut | None = None
    call: Call | None = None
    dropped: bool = False
    answer: Answer = msgspec.field(default_factory=Answer)
    outcome: Outcome | None = None
    """The outcome that counts: the recorded one, where there was one."""
    turn: int = 0
    """Where it sets variables: when, among all that do."""


def followed(answer: Answer) -> Follow:
    """What there is to publish because of an answer alone."""
    tasks = []
    if answer.release is not None:
        tasks.append(decode_task(answer.release))
    if answer.refill is not None:
        refill, stop = decode_task(answer.refill_task), answer.refill[1]
        cursors = [answer.refill, (stop, stop)] if answer.reads else [answer.refill]
        tasks += [msgspec.structs.replace(refill, cursor=cursor) for cursor in cursors]
    return Follow(tasks=tasks, answer=answer)
