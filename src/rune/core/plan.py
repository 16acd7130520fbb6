"""What follows when a step has an outcome: a pure decision that asks State as it goes.

`plan` is a generator. It yields the operations it needs carried out atomically, is sent the Answer, and
returns what there is to publish. A plain step with one successor yields nothing: it makes no State call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from rune.core.context import NOBODY, Context, Ref, Writers
from rune.core.ids import derive
from rune.core.messages import NULL, Branch, Frame, Task, decode_task, encode, scope_of
from rune.core.node import Role
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Outcome, Sleep, Source
from rune.core.paths import Paths
from rune.core.ports import (
    Answer,
    Arm,
    ArriveAt,
    End,
    Open,
    Operation,
    Place,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
    scope_key,
)
from rune.core.scope import unwrapped
from rune.core.workflow import Edge, Node, Workflow

__all__ = [
    "Deadline",
    "Follow",
    "Limits",
    "Plan",
    "Snapshot",
    "Step",
    "followed",
    "merge_step",
    "pass_on",
    "plan",
    "simply",
]

Plan = Generator[Sequence[Operation], Answer, "Follow"]


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


class Follow(Struct, gc=False):
    """What there is to publish and to tell, once State agrees."""

    children: list[tuple[Edge, Branch]] = []
    tasks: list[Task] = []
    """Tasks for joins that this step opened, and refills."""
    fan_out: FanOut | None = None
    dropped: bool = False
    answer: Answer = msgspec.field(default_factory=Answer)
    outcome: Outcome | None = None
    """The outcome that counts: the recorded one, where there was one."""


def _merge_id(task: Task, lineage: tuple[Frame, ...], node: str) -> str:
    """The step that a merge runs as, once it opens."""
    return merge_step(task.root or task.execution_id, scope_of(lineage), node)


def merge_step(root: str, place: Place, node: str) -> str:
    """The step that a merge in this scope runs as, once it opens."""
    return derive(root, scope_key(place), node)


def pass_on(step: Step, outcome: Outcome) -> Follow | None:
    """What follows a plain step with one successor, which State need not know of; None is for `plan`."""
    if type(outcome) is not Done or step.recorded is not None or step.node.role is not Role.PLAIN:
        return None
    taken, dead = step.flow.route(step.node.id, outcome.port)
    if len(taken) != 1 or any(step.paths.let_down(edge) for edge in dead):
        return None
    return Follow(children=_children(step, _knowing(step, outcome), taken), outcome=outcome)


def plan(step: Step, outcome: Outcome, replay: Callable[[bytes], Outcome]) -> Plan:
    """Decide what follows `outcome`; `replay` reads a recorded one."""
    record: list[Operation] = [Record(step.recorded, step.fence)] if step.recorded is not None else []
    deciding = _decide(step, outcome, record)
    answer: Answer | None = None
    while True:
        try:
            operations = next(deciding) if answer is None else deciding.send(answer)
        except StopIteration as stop:
            follow: Follow = stop.value
            follow.outcome = outcome
            return follow
        answer = yield operations
        if answer.record is not None:
            # Somebody was first: what they found counts, whatever we found.
            bare = msgspec.structs.replace(step, recorded=None)
            return (yield from plan(bare, replay(answer.record), replay))
        if answer.gone or answer.dropped:
            follow = followed(answer)
            follow.dropped = True
            return follow


def simply(*operations: Operation) -> Plan:
    """A plan that asks for this, and publishes only what it happens to open."""
    answer = yield operations
    follow = followed(answer)
    follow.dropped = answer.gone or answer.dropped
    return follow


def _decide(step: Step, outcome: Outcome, record: list[Operation]) -> Plan:
    match outcome:
        case Done():
            return _go_on(step, outcome, record)
        case Failed():
            return _fail(step, outcome, record)
        case Arrive():
            return _arrive(step, outcome, record)
        case Join():
            return _join(step, outcome, record)
        case FanOut():
            return _fan_out(step, outcome, record)
        case Sleep():
            return _sleep(step, outcome, record)


def _go_on(step: Step, outcome: Done, record: list[Operation]) -> Plan:
    if step.node.role is Role.SPLIT:
        # A fan-out without an aggregator has ended: its body's edges were its items' business.
        taken: Sequence[Edge] = ()
        dead: Iterable[Edge] = step.paths.beyond(step.node.id)
    else:
        taken, dead = step.flow.route(step.node.id, outcome.port)
    return (yield from _leave(step, _knowing(step, outcome), taken, dead, record))


def _fail(step: Step, outcome: Failed, record: list[Operation]) -> Plan:
    node, branch = step.node, step.branch
    error = msgspec.json.encode(outcome.error)
    output = {f"${node.id}": Raw(b'{"error":' + error + b"}")}
    # What fails on its way into an aggregator is an item: the aggregator's policy is for the whole fan-out.
    arriving = node.role is Role.GATHER and step.task.phase == "run"
    policy = "halt" if arriving else node.error.type
    if policy == "branch":
        context = branch.context.having({**output, "$error": Raw(error)}, node.id)
        beyond = step.paths.beyond(node.id) if node.role is Role.SPLIT else step.flow.outgoing[node.id]
        taken: Sequence[Edge] = [e for e in step.flow.outgoing[node.id] if e.is_error]
        return (yield from _leave(step, context, taken, [e for e in beyond if e not in taken], record))
    if policy == "ignore":
        context = branch.context.having(output)
        if node.role is Role.SPLIT:
            return (yield from _fan_out_nothing(step, context, record))
        taken, dead = step.flow.route(node.id, node.type.ports[-1] if node.type.ports else "fallback")
        return (yield from _leave(step, context, taken, dead, record))
    if branch.lineage:
        answer = yield [*record, Settle(-1, error=error)]
    else:
        status = "failed" if outcome.engine else "halted"
        answer = yield [*record, End(status, error, context=_snapshot(branch.context))]
    return followed(answer)


def _leave(
    step: Step, context: Context, taken: Sequence[Edge], dead: Iterable[Edge], record: list[Operation]
) -> Plan:
    """Go on along `taken`, and tell the merges behind `dead` that nothing comes."""
    branch = step.branch
    children = _children(step, context, taken)
    opened, operations = yield from _tell(step, dead, record)
    hands_over_to = len(children) + len(opened)
    answer = Answer()
    # A branch that goes nowhere leaves what it knew, also if its news opened a merge.
    end = _snapshot(context) if not children and not branch.lineage else None
    if hands_over_to != 1 or end is not None:
        operations = [*operations, Settle(hands_over_to - 1, end, branch.path, step.node.id)]
    if operations:
        answer = yield operations
    follow = followed(answer)
    follow.children = children
    follow.tasks += [_merge_task(step, merge) for merge in opened]
    return follow


def _tell(
    step: Step, dead: Iterable[Edge], operations: list[Operation]
) -> Generator[Sequence[Operation], Answer, tuple[list[str], list[Operation]]]:
    """Tell the merges behind `dead`, and those behind merges that die of it, along with `operations`.

    What comes back are the merges that opened, and the operations that are still to be asked for.
    """
    opened: dict[str, None] = {}
    lost = _lost(step, step.branch.step, dead)
    while lost:
        answer = yield [*operations, *lost]
        operations = []
        opened |= dict.fromkeys(answer.opened)
        lost = [
            skip
            for merge in answer.dead
            for skip in _lost(step, merge, step.flow.outgoing[_node_of(step, merge)])
        ]
    return list(opened), operations


def _arrive(step: Step, outcome: Arrive, record: list[Operation]) -> Plan:
    branch = step.branch
    settle = Settle(-1, bytes(outcome.result), branch.path, branch.from_node or "", outcome.folds)
    answer = yield [*record, settle]
    return followed(answer)


def _join(step: Step, outcome: Join, record: list[Operation]) -> Plan:
    branch = step.branch
    order = next((i for i, e in enumerate(step.flow.incoming[step.node.id]) if e.id == branch.edge), 0)
    payload = _snapshot(branch.context, branch)
    rule = _rule(step, step.node, arriving=True)
    answer = yield [*record, ArriveAt(rule, order, payload)]
    follow = followed(answer)
    follow.tasks += [_merge_task(step, merge) for merge in answer.opened]
    return follow


def _sleep(step: Step, outcome: Sleep, record: list[Operation]) -> Plan:
    branch = step.branch
    context = branch.context.having({f"${step.node.id}": outcome.output})
    asleep = msgspec.structs.replace(branch, context=context)
    wake = step.task_for(step.node.id, asleep, phase="wake")
    answer = yield [*record, Arm(Timer(branch.step, outcome.until, encode(wake)))]
    return followed(answer)


def _fan_out_nothing(step: Step, context: Context, record: list[Operation]) -> Plan:
    """A split whose failure is ignored: what follows its fan-out runs, with no items."""
    if step.node.id not in step.paths.closer:
        return (yield from _leave(step, context, (), step.paths.beyond(step.node.id), record))
    empty = msgspec.structs.replace(step, branch=msgspec.structs.replace(step.branch, context=context))
    return (yield from _fan_out(empty, FanOut(Source(items=[])), record))


def _fan_out(step: Step, outcome: FanOut, record: list[Operation]) -> Plan:
    node, branch = step.node, step.branch
    gather = step.paths.closer.get(node.id, node.id)
    total = len(outcome.source)
    body = [e for e in step.flow.outgoing[node.id] if not e.is_error]
    if not body:
        return (yield from _go_on(step, Done(Raw(msgspec.json.encode({"count": total})), None), record))
    count = Raw(msgspec.json.encode({"count": total}))
    branch = msgspec.structs.replace(branch, context=branch.context.having({f"${node.id}": count}))
    resuming = msgspec.structs.replace(branch, step=derive(branch.step, "~gather"))
    barrier = Raw(msgspec.json.encode(branch.step))
    release = step.task_for(gather, resuming, phase="gather", details=barrier)
    refill = step.task_for(node.id, branch, phase="refill", details=Raw(msgspec.json.encode(outcome)))
    opening = Open(
        branch.step,
        total,
        len(body),
        encode(release),
        outcome.policy,
        outcome.window,
        min(total, outcome.window) if outcome.window else total,
        _keeps_results(step, gather),
        _timer(step, gather, branch.step),
        encode(refill) if outcome.window else b"",
    )
    dead = [e for e in step.flow.outgoing[node.id] if e.is_error] if gather != node.id else []
    follow = yield from _leave_open(step, opening, dead, record)
    follow.fan_out = outcome if total else None
    return follow


def _leave_open(step: Step, opening: Open, dead: list[Edge], record: list[Operation]) -> Plan:
    """Open the barrier, which keeps the branch's place, and tell the merges behind `dead`."""
    answer = yield [*record, opening]
    follow = followed(answer)
    opened, _ = yield from _tell(step, dead, [])
    if opened:
        # The barrier counts for the branch itself: only what else was opened is new.
        yield [Settle(len(opened))]
        follow.tasks += [_merge_task(step, merge) for merge in opened]
    return follow


# --- pieces ---


def _knowing(step: Step, outcome: Done) -> Context:
    """The branch's context with the outcome's output."""
    context = step.branch.context
    if outcome.refs:
        return context.referring(outcome.refs, step.node.id)
    values = {f"${step.node.id}": outcome.output}
    if outcome.working:
        values["$json"] = unwrapped(outcome.output)
    return context.having(values, step.node.id)


def _children(step: Step, context: Context, taken: Sequence[Edge]) -> list[tuple[Edge, Branch]]:
    parent, node = step.branch, step.node.id
    if len(taken) == 1:
        (edge,) = taken
        id = derive(parent.step, edge.id)
        return [(edge, Branch(id, parent.lineage, context, parent.path, node, edge.id))]
    return [
        (
            edge,
            Branch(
                derive(parent.step, edge.id), parent.lineage, context, f"{parent.path}.{i}", node, edge.id
            ),
        )
        for i, edge in enumerate(taken)
    ]


def followed(answer: Answer) -> Follow:
    """What there is to publish because of an answer alone."""
    tasks = []
    if answer.release is not None:
        tasks.append(decode_task(answer.release))
    if answer.refill is not None:
        tasks.append(msgspec.structs.replace(decode_task(answer.refill_task), cursor=answer.refill))
    return Follow(tasks=tasks, answer=answer)


def _snapshot(context: Context, branch: Branch | None = None) -> bytes:
    path, source = (branch.path, branch.from_node) if branch else ("", None)
    return msgspec.json.encode(Snapshot(context.inline(), context.refs, path, source, context.writers))


def _lost(step: Step, teller: str, dead: Iterable[Edge]) -> list[Operation]:
    """One Skip for each merge behind each dead edge, in the order of the graph."""
    skips = [
        Skip(_rule(step, step.flow.nodes[merge]), f"{teller}!{edge.id}", weight)
        for edge in dead
        for merge, weight in step.paths.let_down(edge).items()
    ]
    skips.sort(key=lambda skip: step.paths.order[skip.rule.node])
    return list(skips)


def _rule(step: Step, node: Node, *, arriving: bool = False) -> Rule:
    merge = _merge_id(step.task, step.branch.lineage, node.id)
    parameters = node.parameters.constant
    return Rule(
        merge,
        node.id,
        step.paths.expected[node.id],
        parameters.need(),
        _timer(step, node.id, merge) if arriving else None,
    )


def _node_of(step: Step, merge: str) -> str:
    """The node of a merge of this scope."""
    lineage = step.branch.lineage
    return next(id for id in step.paths.expected if _merge_id(step.task, lineage, id) == merge)


def _merge_task(step: Step, merge: str) -> Task:
    branch = Branch(merge, step.branch.lineage, Context({}))
    return step.task_for(_node_of(step, merge), branch, phase="gather")


def _keeps_results(step: Step, gather: str) -> bool:
    node = step.flow.nodes[gather]
    return node.role is not Role.GATHER or node.parameters.constant.keeps_results()


def _timer(step: Step, node: str, target: str) -> Timer | None:
    """The time-out of a join: its `timeout` in full, else the default, which counts idle time only."""
    if step.flow.nodes[node].role is Role.SPLIT:
        return None  # Without an aggregator nobody waits.
    timeout = getattr(step.flow.nodes[node].parameters.constant, "timeout", None)
    branch = msgspec.structs.replace(step.branch, step=derive(target, "~expire"), context=Context({}))
    details = Deadline(target, None if timeout is not None else step.limits.timeout)
    task = step.task_for(node, branch, phase="expire", details=Raw(msgspec.json.encode(details)))
    due = step.now + (timeout if timeout is not None else step.limits.timeout)
    return Timer(task.step, due, encode(task), sleeping=False)
