"""What follows when a step has an outcome: a pure decision that asks State as it goes.

`plan` is a generator. It yields the operations it needs carried out atomically, is sent the Answer, and
returns what there is to publish. A plain step with one successor yields nothing: it makes no State call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

import msgspec
from msgspec import Raw

from rune.core.context import Context
from rune.core.ids import derive
from rune.core.joining import losses, merge_task, node_of, rule_of, timeout_of
from rune.core.messages import Branch, encode
from rune.core.node import Role
from rune.core.operations import Answer, Arm, ArriveAt, End, Extend, Open, Operation, Record, Settle, Timer
from rune.core.outcome import Arrive, Call, Done, Failed, FanOut, Join, Outcome, Sleep, Source
from rune.core.scope import unwrapped
from rune.core.step import Follow, Plan, Snapshot, Step, followed
from rune.core.workflow import Edge

__all__ = ["call_key", "pass_on", "plan", "simply"]


def call_key(step: str, attempt: int) -> str:
    """The name of the call that a step makes at an attempt, and of the timer in which it rests meanwhile."""
    return derive(step, "~call", str(attempt))


def pass_on(step: Step, outcome: Outcome) -> Follow | None:
    """What follows a plain step with one successor, which State need not know of; None is for `plan`."""
    if type(outcome) is not Done or step.recorded is not None or step.node.role is not Role.PLAIN:
        return None
    taken, dead = step.flow.route(step.node.id, outcome.port)
    if len(taken) != 1 or any(step.paths.let_down(edge) for edge in dead):
        return None
    return Follow(children=_children(step, _knowing(step, outcome), taken), outcome=outcome, turn=step.turn)


def plan(step: Step, outcome: Outcome, replay: Callable[[bytes], Outcome]) -> Plan:
    """Decide what follows `outcome`; `replay` reads a recorded one."""
    record: list[Operation] = []
    if step.recorded is not None:
        record = [Record(step.recorded, step.fence, _sets(outcome))]
    deciding = _decide(step, outcome, record)
    answer: Answer | None = None
    turn = step.turn
    while True:
        try:
            operations = next(deciding) if answer is None else deciding.send(answer)
        except StopIteration as stop:
            follow: Follow = stop.value
            follow.outcome = outcome
            follow.turn = turn
            return follow
        answer = yield operations
        turn = answer.turn or turn
        if answer.record is not None:
            # Somebody was first: what they found counts, whatever we found.
            bare = msgspec.structs.replace(step, recorded=None, turn=turn)
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
    if step.task.phase == "refill":
        return _extend(step, outcome, record)
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
        case Call():
            return _call(step, outcome, record)


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
    follow.tasks += [merge_task(step, merge) for merge in opened]
    return follow


def _tell(
    step: Step, dead: Iterable[Edge], operations: list[Operation]
) -> Generator[Sequence[Operation], Answer, tuple[list[str], list[Operation]]]:
    """Tell the merges behind `dead`, and those behind merges that die of it, along with `operations`.

    What comes back are the merges that opened, and the operations that are still to be asked for.
    """
    opened: dict[str, None] = {}
    lost = losses(step, step.branch.step, dead)
    while lost:
        answer = yield [*operations, *lost]
        operations = []
        opened |= dict.fromkeys(answer.opened)
        lost = [
            skip
            for merge in answer.dead
            for skip in losses(step, merge, step.flow.outgoing[node_of(step, merge)])
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
    rule = rule_of(step, step.node, arriving=True)
    answer = yield [*record, ArriveAt(rule, order, payload)]
    follow = followed(answer)
    follow.tasks += [merge_task(step, merge) for merge in answer.opened]
    return follow


def _sleep(step: Step, outcome: Sleep, record: list[Operation]) -> Plan:
    branch = step.branch
    context = branch.context.having({f"${step.node.id}": outcome.output})
    asleep = msgspec.structs.replace(branch, context=context)
    wake = step.task_for(step.node.id, asleep, phase="wake")
    answer = yield [*record, Arm(Timer(branch.step, outcome.until, encode(wake)))]
    return followed(answer)


def _call(step: Step, outcome: Call, record: list[Operation]) -> Plan:
    """Rest in a timer that only the other execution's end makes due: armed before that one is started."""
    branch, attempt = step.branch, step.task.attempt
    name = Raw(msgspec.json.encode(outcome.workflow))
    task = step.task_for(step.node.id, branch, phase="answer", attempt=attempt, details=name)
    answer = yield [*record, Arm(Timer(call_key(branch.step, attempt), None, encode(task)))]
    follow = followed(answer)
    follow.call = outcome
    return follow


def _fan_out_nothing(step: Step, context: Context, record: list[Operation]) -> Plan:
    """A split whose failure is ignored: what follows its fan-out runs, with no items."""
    if step.node.id not in step.paths.closer:
        return (yield from _leave(step, context, (), step.paths.beyond(step.node.id), record))
    empty = msgspec.structs.replace(step, branch=msgspec.structs.replace(step.branch, context=context))
    return (yield from _fan_out(empty, FanOut(Source(items=[])), record))


def _fan_out(step: Step, outcome: FanOut, record: list[Operation]) -> Plan:
    node, branch = step.node, step.branch
    gather = step.paths.closer.get(node.id, node.id)
    lazy = outcome.source.lazy is not None
    total = len(outcome.source)
    body = [e for e in step.flow.outgoing[node.id] if not e.is_error]
    if not body:
        return (yield from _go_on(step, Done(outcome.source.count, None), record))
    release, refill = _kept(step, branch, outcome)
    opening = Open(
        branch.step,
        total,
        len(body),
        release,
        outcome.policy,
        outcome.window,
        min(total, outcome.window) if outcome.window else total,
        _keeps_results(step, gather),
        timeout_of(step, gather, branch.step),
        refill if outcome.window else b"",
        lazy,
    )
    dead = [e for e in step.flow.outgoing[node.id] if e.is_error] if gather != node.id else []
    follow = yield from _leave_open(step, opening, dead, record)
    follow.fan_out = outcome if total else None
    return follow


def _kept(step: Step, branch: Branch, outcome: FanOut) -> tuple[bytes, bytes]:
    """The Tasks that a barrier keeps: one that goes on after it, and one that publishes more items."""
    node = step.node.id
    knowing = branch.context.having({f"${node}": outcome.source.count})
    branch = msgspec.structs.replace(branch, context=knowing)
    resuming = msgspec.structs.replace(branch, step=derive(branch.step, "~gather"))
    barrier = Raw(msgspec.json.encode(branch.step))
    gather = step.paths.closer.get(node, node)
    release = step.task_for(gather, resuming, phase="gather", details=barrier)
    refill = step.task_for(node, branch, phase="refill", details=Raw(msgspec.json.encode(outcome)))
    return encode(release), encode(refill)


def _extend(step: Step, outcome: Outcome, record: list[Operation]) -> Plan:
    """A lazy source was read on: its fan-out is what is known of it now."""
    if isinstance(outcome, FanOut):
        known, _ = step.task.cursor or (0, 0)
        split = msgspec.structs.replace(step.branch, step=step.task.step)
        release, refill = _kept(step, split, outcome)
        ended = outcome.source.lazy is None
        extend = Extend(len(outcome.source) - known, ended, refill, release if ended else b"")
    else:
        extend = Extend(failure=msgspec.json.encode(outcome))
    answer = yield [*record, extend]
    return followed(answer)


def _leave_open(step: Step, opening: Open, dead: list[Edge], record: list[Operation]) -> Plan:
    """Open the barrier, which keeps the branch's place, and tell the merges behind `dead`."""
    answer = yield [*record, opening]
    follow = followed(answer)
    opened, _ = yield from _tell(step, dead, [])
    if opened:
        # The barrier counts for the branch itself: only what else was opened is new.
        yield [Settle(len(opened))]
        follow.tasks += [merge_task(step, merge) for merge in opened]
    return follow


# --- pieces ---


def _sets(outcome: Outcome) -> tuple[tuple[str, bytes], ...]:
    if type(outcome) is not Done or not outcome.sets:
        return ()
    return tuple((name, msgspec.json.encode(value)) for name, value in outcome.sets.items())


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


def _snapshot(context: Context, branch: Branch | None = None) -> bytes:
    path, source = (branch.path, branch.from_node) if branch else ("", None)
    return msgspec.json.encode(Snapshot(context.inline(), context.refs, path, source, context.writers))


def _keeps_results(step: Step, gather: str) -> bool:
    node = step.flow.nodes[gather]
    return node.role is not Role.GATHER or node.parameters.constant.keeps_results()
