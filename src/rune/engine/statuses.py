"""What the outside is told of steps as they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import gmtime
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.ids import child_of, derive
from rune.core.joining import merge_step
from rune.core.messages import Branch, NodeStatusMessage, Sets, Task, scope_of
from rune.core.node import Gathered, NodeType, Role
from rune.core.outcome import Arrive, Call, Done, Failed, FanOut, Join, Sleep
from rune.core.plan import call_key
from rune.core.ports import Broker
from rune.core.step import Follow, Step
from rune.engine.running import Attempt
from rune.engine.values import stored_sets

__all__ = ["Statuses", "iso"]

_EVERY_ARRIVAL = 100
"""Up to so many items every arrival is told; beyond, ten a second."""


_REUSED = {"reused": True}
_JOINS = (Role.GATHER, Role.MERGE)


def _manner(done: Done) -> dict[str, Any]:
    """What an outcome was besides its output and its port."""
    told = done.details or {}
    return {**told, **({"working": True} if done.working else {}), **(_REUSED if done.reused else {})}


def iso(at: float) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return _moment(round(at * 1000))


@lru_cache(16)
def _moment(at: int) -> str:
    whole, ms = divmod(at, 1000)
    t = gmtime(whole)
    return f"{t[0]:04}-{t[1]:02}-{t[2]:02}T{t[3]:02}:{t[4]:02}:{t[5]:02}.{ms:03}Z"


class Statuses:
    """Makes status messages and hands them to the broker."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        self._told = 0.0
        self.counts: dict[tuple[type[NodeType], type], int] = defaultdict(int)
        """Steps that have ended or rest, by the type of their node and of the outcome that counts."""

    def opened(self, step: Step, found: Gathered) -> None:
        """This step starts, because its join has opened."""
        if not self._broker.listened:
            return
        told = _status(step, "running", iso(self._clock()), 0, closes=_closed_by(step))
        if step.node.role is Role.GATHER:
            told = msgspec.structs.replace(told, gathered=(found.total, found.skipped))
        self._broker.emit([told])

    def running(self, steps: Sequence[Step]) -> None:
        """These steps start."""
        if not self._broker.listened:
            return
        at = iso(self._clock())
        if steps[0].node.role is Role.PLAIN:
            queued = _queued(steps[0])
            self._broker.emit([_status(step, "running", at, 0, details=queued) for step in steps])
        else:
            told = [(step, _join_of(step), _closed_by(step)) for step in steps]
            self._broker.emit(
                [_status(step, "running", at, 0, join=join, closes=closes) for step, join, closes in told]
            )

    def passed(self, step: Step, outcome: Done) -> None:
        """This step has run and ended at once."""
        self.counts[step.node.type, Done] += 1
        if not self._broker.listened:
            return
        now = self._clock()
        ms = max(0, round((now - step.now) * 1000))
        ended = _success(step, outcome, iso(now), ms)
        # One that wakes was told of before it slept.
        woke = step.task.phase == "wake"
        self._broker.emit([ended] if woke else [_status(step, "running", iso(step.now), 0), ended])

    def lost(self, task: Task, branch: Branch, error: ErrorInfo) -> None:
        """This branch ends because nobody can work on its Task: of its node, only the id may be known."""
        if not self._broker.listened:
            return
        told = NodeStatusMessage(
            workflow_id=task.workflow_id,
            execution_id=task.execution_id,
            node_id=task.current_node,
            status="failed",
            error=error,
            executed_at=iso(self._clock()),
            duration_ms=0,
            lineage_stack=branch.lineage,
            step=branch.step,
            attempt=task.attempt,
            caller=task.caller,
        )
        self._broker.emit([told])

    def concluded(
        self, steps: Sequence[Step], attempts: Sequence[Attempt], follows: Sequence[Follow]
    ) -> None:
        """These steps have ended, or rest."""
        if steps[0].task.phase == "refill":
            # Reading on is a part of the split, whose join tells if it failed.
            return
        for step, follow in zip(steps, follows, strict=True):
            self.counts[step.node.type, type(follow.outcome)] += 1
        if not self._broker.listened:
            return
        now = self._clock()
        at = iso(now)
        statuses = []
        for step, attempt, follow in zip(steps, attempts, follows, strict=True):
            status = self._told_of(step, attempt, follow, now, at)
            if status is not None:
                statuses.append(status)
        if statuses:
            self._broker.emit(statuses)

    def _told_of(
        self, step: Step, attempt: Attempt, follow: Follow, now: float, at: str
    ) -> NodeStatusMessage | None:
        ms = max(0, round((now - attempt.started) * 1000))
        answer = follow.answer
        if attempt.retry_in is not None and follow.outcome is None and isinstance(attempt.outcome, Failed):
            details = {
                **(attempt.outcome.details or {}),
                "retry_at": iso(now + attempt.retry_in),
                "attempt": step.task.attempt,
            }
            return _status(step, "failed", at, ms, error=attempt.outcome.error, details=details)
        match follow.outcome:
            case Done() as done:
                return _success(step, done, at, ms, follow.turn)
            case Failed(error=error, reused=reused, details=told):
                manner = {**(told or {}), **_REUSED} if reused else told
                join = _join_of(step) if step.node.role in _JOINS else ""
                handled = not join and step.node.error.type != "halt"
                return _status(
                    step, "failed", at, ms, error=error, details=manner, join=join, handled=handled
                )
            case Sleep(until=until, output=output):
                resume_at = iso(until) if until is not None else None
                return _status(step, "waiting", at, ms, output=output, details={"resume_at": resume_at})
            case Call(workflow=workflow):
                key = call_key(step.branch.step, step.task.attempt)
                child = {"child": child_of(step.task.execution_id, key), "workflow": workflow}
                return _status(step, "waiting", at, ms, details=child)
            case FanOut(source=source):
                known = len(source) if source.lazy is None else None
                return _status(step, "success", at, ms, output=source.count, details={"count": known})
            case Join() if answer.arrived and not answer.opened:
                arrived, expected = answer.arrived
                details = {"arrived": arrived, "expected": expected}
                return _status(step, "waiting", at, ms, details=details, join=_join_of(step))
            case Arrive() if answer.progress is not None:
                return self._progress(step, follow, now, at, ms)
        return None

    def _progress(self, step: Step, follow: Follow, now: float, at: str, ms: int) -> NodeStatusMessage | None:
        progress = follow.answer.progress
        if progress is None:
            return None
        last = progress.processed == progress.total
        if (progress.total or progress.processed) > _EVERY_ARRIVAL and not last and now - self._told < 0.1:
            return None
        self._told = now
        details = {
            "processed": progress.processed,
            "total": progress.total,
            "failed": progress.failed,
            "skipped": progress.skipped,
        }
        return _status(step, "waiting", at, ms, details=details, join=_join_of(step))


def _queued(step: Step) -> dict[str, Any] | None:
    """Since when steps that may wait too long have waited."""
    expires, queue = step.task.expires, step.node.job.queue
    return {"queued_at": iso(expires - queue)} if expires and queue else None


def _join_of(step: Step) -> str:
    """The step of the join that a branch reaches, before it has opened."""
    if step.task.phase != "run" or step.node.role is Role.SPLIT:
        return ""
    if step.node.role is Role.MERGE:
        task = step.task
        return merge_step(task.root or task.execution_id, scope_of(step.branch.lineage), step.node.id)
    return derive(step.branch.lineage[-1].barrier, "~gather") if step.branch.lineage else ""


def _closed_by(step: Step) -> str:
    """The barrier whose items a step gathers."""
    if step.task.phase != "gather" or step.node.role is Role.MERGE:
        return ""
    return str(msgspec.json.decode(step.task.details))


def _sets(done: Done, turn: int) -> Sets | None:
    """The variables that an outcome sets, as far as a message may carry them."""
    if not done.sets:
        return None
    ref, data = stored_sets(done.sets)
    return Sets(turn, ref=ref) if ref else Sets(turn, Raw(data))


def _success(step: Step, done: Done, at: str, ms: int, turn: int = 0) -> NodeStatusMessage:
    output, ref = (None, done.refs[0]) if done.refs else (done.output, None)
    details = _manner(done) if done.working or done.reused or done.details else None
    status = "success" if done.error is None else "failed"
    return _status(
        step,
        status,
        at,
        ms,
        output=output,
        output_ref=ref,
        error=done.error,
        details=details,
        port=",".join(done.port) if isinstance(done.port, tuple) else done.port,
        handled=done.error is not None,
        sets=_sets(done, turn),
    )


def _status(
    step: Step,
    status: str,
    at: str,
    ms: int,
    *,
    output: Raw | None = None,
    output_ref: Ref | None = None,
    error: ErrorInfo | None = None,
    details: dict[str, Any] | None = None,
    port: str | None = "out",
    join: str = "",
    closes: str = "",
    handled: bool = False,
    sets: Sets | None = None,
) -> NodeStatusMessage:
    return NodeStatusMessage(
        workflow_id=step.task.workflow_id,
        execution_id=step.task.execution_id,
        node_id=step.node.id,
        status=status,  # type: ignore[arg-type]
        output=output,
        error=error,
        output_ref=output_ref,
        executed_at=at,
        duration_ms=ms,
        node_name=step.node.name,
        lineage_stack=step.branch.lineage,
        details=details,
        step=step.branch.step,
        attempt=step.task.attempt,
        port=port,
        join=join,
        closes=closes,
        handled=handled,
        sets=sets,
        caller=step.task.caller,
    )
