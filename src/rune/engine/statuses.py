"""What the outside is told of steps as they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import gmtime
from typing import Any

from msgspec import Raw

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.messages import NodeStatusMessage
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Sleep
from rune.core.plan import Follow, Step
from rune.core.ports import Broker
from rune.engine.running import Attempt

__all__ = ["Statuses", "iso"]

_EVERY_ARRIVAL = 100
"""Up to so many items every arrival is told; beyond, ten a second."""


def iso(at: float) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    whole, ms = divmod(round(at * 1000), 1000)
    t = gmtime(whole)
    return f"{t[0]:04}-{t[1]:02}-{t[2]:02}T{t[3]:02}:{t[4]:02}:{t[5]:02}.{ms:03}Z"


class Statuses:
    """Makes status messages and hands them to the broker."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        self._told = 0.0

    def running(self, steps: Sequence[Step]) -> None:
        """These steps start."""
        if not self._broker.listened:
            return
        at = iso(self._clock())
        self._broker.emit([_status(step, "running", at, 0) for step in steps])

    def concluded(
        self, steps: Sequence[Step], attempts: Sequence[Attempt], follows: Sequence[Follow]
    ) -> None:
        """These steps have ended, or rest."""
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
            details = {"retry_at": iso(now + attempt.retry_in), "attempt": step.task.attempt}
            return _status(step, "failed", at, ms, error=attempt.outcome.error, details=details)
        match follow.outcome:
            case Done(refs=(ref, *_)):
                return _status(step, "success", at, ms, output_ref=ref)
            case Done(output=output):
                return _status(step, "success", at, ms, output=output)
            case Failed(error=error):
                return _status(step, "failed", at, ms, error=error)
            case Sleep(until=until):
                resume_at = iso(until) if until is not None else None
                return _status(step, "waiting", at, ms, details={"resume_at": resume_at})
            case FanOut(source=source):
                return _status(step, "success", at, ms, output=Raw(b'{"count":%d}' % len(source)))
            case Join() if answer.arrived and not answer.opened:
                arrived, expected = answer.arrived
                return _status(step, "waiting", at, ms, details={"arrived": arrived, "expected": expected})
            case Arrive() if answer.progress is not None:
                return self._progress(step, follow, now, at, ms)
        return None

    def _progress(self, step: Step, follow: Follow, now: float, at: str, ms: int) -> NodeStatusMessage | None:
        progress = follow.answer.progress
        if progress is None:
            return None
        last = progress.processed == progress.total
        if progress.total > _EVERY_ARRIVAL and not last and now - self._told < 0.1:
            return None
        self._told = now
        details = {
            "processed": progress.processed,
            "total": progress.total,
            "failed": progress.failed,
            "skipped": progress.skipped,
        }
        return _status(step, "waiting", at, ms, details=details)


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
    )
