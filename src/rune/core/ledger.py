"""What each State operation does, once for all backends that run in Python.

The rules live here; a backend supplies `Rows`, which keeps them. Nothing here waits or talks to anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from rune.core.fanouts import FanOuts
from rune.core.merges import Merges
from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    End,
    Ending,
    Expire,
    Extend,
    Lease,
    Open,
    Operation,
    Place,
    Record,
    Rule,
    Seed,
    Settle,
    Skip,
    Timer,
    TryAgain,
    scope_key,
)
from rune.core.rows import EndRow, ExecutionRow, Rows, ScopeRow, StepRow

__all__ = ["Ledger"]


class Ledger:
    """Carries out commits and leases on rows."""

    def __init__(self, rows: Rows, clock: Callable[[], float]) -> None:
        self._rows = rows
        self._clock = clock
        self._fan_outs = FanOuts(rows)
        self._merges = Merges(rows)

    # --- the calls ---

    def apply(self, execution: str, commits: Sequence[Commit]) -> list[Answer]:
        """See `State.apply`."""
        # That a time-out was looked at is no progress.
        progress = not any(isinstance(op, Expire) for commit in commits for op in commit.operations[:1])
        row = self._touch(execution, progress)
        if len(commits) > 1:
            self._foresee(execution, [commit.place for commit in commits])
        return [self._commit(row, commit) for commit in commits]

    def _foresee(self, execution: str, places: Sequence[Place]) -> None:
        items: dict[str, list[int]] = {}
        for place in places:
            if place:
                barrier, item = place[-1]
                items.setdefault(barrier, []).append(item)
        for barrier, of_barrier in items.items():
            self._rows.foresee(execution, barrier, of_barrier)

    def lease(
        self, execution: str, steps: Sequence[tuple[str, Place]], attempt: int, until: float
    ) -> list[Lease]:
        """See `State.lease`."""
        row = self._touch(execution)
        if len(steps) > 1:
            self._foresee(execution, [place for _, place in steps])
        return [self._lease(row, step, place, attempt, until) for step, place in steps]

    def seed(self, execution: str, seeds: Sequence[Seed]) -> None:
        """See `State.seed`."""
        row = self._touch(execution)
        if row.ending or row.buried:
            return
        for seed in seeds:
            if self._rows.step(execution, seed.step) is None:
                # The scope gets its row when the step is met: how wide it is, nobody knows yet.
                known = StepRow(scope_key(seed.place), seed.outcome, turn=seed.turn)
                if seed.turn:
                    self._rows.sow_variables(execution, seed.sets, seed.turn)
                else:
                    known.sets = seed.sets
                self._rows.save_step(execution, seed.step, known)

    def woken(self, timers: Sequence[Timer]) -> None:
        """Branches that slept in these timers are on their way: that is progress."""
        for execution in {timer.execution for timer in timers if timer.sleeping}:
            if self._rows.execution(execution) is not None:
                self._touch(execution)

    def takes(self, execution: str) -> bool:
        """Whether anything may still be kept for this execution."""
        row = self._rows.execution(execution)
        return row is None or not row.buried

    def _touch(self, execution: str, progress: bool = True) -> ExecutionRow:
        row = self._rows.execution(execution) or ExecutionRow(execution)
        now = self._clock()
        # Default time-outs ask when something last happened; to the second is enough.
        if progress and now - row.touched > 1.0 and not (row.ending or row.buried):
            row.touched = now
            self._rows.save_execution(row)
        return row

    def _lease(self, row: ExecutionRow, step: str, place: Place, attempt: int, until: float) -> Lease:
        gate = self._gate(row, step, place)
        if gate is not None:
            return Lease(gone=gate.gone, dropped=gate.dropped)
        known = self._rows.step(row.id, step) or StepRow(scope_key(place))
        if known.record is not None:
            self._own(row.id, place)
            if known.sets:
                known.turn, known.sets = self._rows.set_variables(row.id, known.sets), ()
                self._rows.save_step(row.id, step, known)
            return Lease(record=known.record, turn=known.turn)
        if known.spent >= attempt:
            return Lease(gone=True)
        if known.leased_until > self._clock():
            return Lease(busy_until=known.leased_until)
        known.fence += 1
        known.leased_until = until
        self._own(row.id, place)
        self._rows.save_step(row.id, step, known)
        return Lease(fence=known.fence)

    def _commit(self, row: ExecutionRow, commit: Commit) -> Answer:
        gate = self._gate(row, commit.step, commit.place)
        if gate is not None:
            if gate.dropped:
                self._drop(row, commit, gate)
            return gate
        answer = Answer()
        for operation in commit.operations:
            if not self._carry_out(row, commit, operation, answer):
                break
        return answer

    def _drop(self, row: ExecutionRow, commit: Commit, answer: Answer) -> None:
        """End a branch whose item has failed; a time-out is none, and neither is a reader."""
        if commit.reads:
            self._fan_outs.extend(row.id, commit, Extend(ended=True), answer)
        elif not any(isinstance(op, Expire) for op in commit.operations):
            self._settle(row, commit, Settle(-1), answer)

    def _gate(self, row: ExecutionRow, step: str, place: Place) -> Answer | None:
        """Why nothing may be done here any more, with the old answer for whoever closed something."""
        if row.buried:
            return Answer(gone=True)
        if row.ending:
            return Answer(gone=True, ending=row.ending if row.closer == step else None)
        failed = False
        key = ""
        for barrier_id, item in place:
            barrier = self._rows.barrier(row.id, barrier_id)
            if barrier is None:
                return Answer(gone=True)
            if barrier.closed or self._rows.has_slot(row.id, barrier_id, item):
                gone = Answer(gone=True, release=barrier.release if barrier.closer == step else None)
                self._fan_outs.refill_again(row.id, barrier, step, gone)
                return gone
            key = f"{barrier_id}.{item}"
            scope = self._rows.scope(row.id, key)
            failed = failed or (scope is not None and scope.error is not None)
        return Answer(dropped=True) if failed else None

    def _carry_out(self, row: ExecutionRow, commit: Commit, operation: Operation, answer: Answer) -> bool:
        """Do one operation; False leaves the rest of the commit undone."""
        match operation:
            case Settle():
                self._settle(row, commit, operation, answer)
            case Record():
                return self._record(row, commit, operation, answer)
            case ArriveAt():
                self._arrive(row, commit, operation, answer)
            case Skip():
                self._skip(row, commit, operation, answer)
            case Open() | Extend():
                self._fan_out(row, commit, operation, answer)
            case Arm():
                self._rows.arm(row.id, operation.timer)
            case TryAgain():
                self._try_again(row, commit, operation)
            case Expire():
                self._expire(row, commit, operation, answer)
            case End():
                contexts = (operation.context,) if operation.context is not None else ()
                ending = Ending(operation.status, self._clock(), contexts, operation.error, operation.reason)
                self._end(row, commit, ending, answer)
            case _:
                assert_never(operation)
        return True

    # --- steps ---

    def _own(self, execution: str, place: Place) -> None:
        """Give the scope a row, so that what is keyed to it is found when it ends."""
        key = scope_key(place)
        if self._rows.scope(execution, key) is None:
            self._rows.save_scope(execution, key, ScopeRow(self._width(execution, place)))

    def _width(self, execution: str, place: Place) -> int:
        if not place:
            return 1
        barrier = self._rows.barrier(execution, place[-1][0])
        return barrier.width if barrier else 1

    def _record(self, row: ExecutionRow, commit: Commit, operation: Record, answer: Answer) -> bool:
        known = self._rows.step(row.id, commit.step) or StepRow(scope_key(commit.place))
        if known.record is not None:
            answer.turn = known.turn
            if known.record != operation.outcome:
                answer.record = known.record
                return False
            return True
        if operation.fence and operation.fence != known.fence:
            answer.gone = True
            return False
        known.record = operation.outcome
        known.leased_until = 0.0
        self._own(row.id, commit.place)
        if operation.sets:
            answer.turn = known.turn = self._rows.set_variables(row.id, operation.sets)
        self._rows.save_step(row.id, commit.step, known)
        return True

    def _try_again(self, row: ExecutionRow, commit: Commit, operation: TryAgain) -> None:
        known = self._rows.step(row.id, commit.step) or StepRow(scope_key(commit.place))
        if known.spent >= operation.attempt:
            return
        known.spent = operation.attempt
        known.leased_until = 0.0
        known.fence = 0
        self._own(row.id, commit.place)
        self._rows.save_step(row.id, commit.step, known)
        self._rows.arm(row.id, operation.timer)

    # --- scopes ---

    def _settle(self, row: ExecutionRow, commit: Commit, operation: Settle, answer: Answer) -> None:
        key = scope_key(commit.place)
        scope = self._rows.scope(row.id, key)
        end = None
        if operation.end is not None:
            end = EndRow(operation.path, operation.node, operation.end, operation.folds)
        if scope is None:
            scope = ScopeRow(self._width(row.id, commit.place))
            if scope.live + operation.change == 0:
                # One branch all along, and it ends: nothing was kept, nothing has to be.
                self._end_scope(row, commit, operation.error, [end] if end else [], answer)
                return
        elif self._rows.settled(row.id, key, commit.step):
            return
        scope.live += operation.change
        scope.error = scope.error or operation.error
        if scope.live == 0:
            ends = [*self._rows.ends(row.id, key), *([end] if end else [])]
            self._end_scope(row, commit, scope.error, ends, answer)
            return
        self._rows.save_scope(row.id, key, scope)
        self._rows.add_settled(row.id, key, commit.step)
        if end:
            self._rows.add_end(row.id, key, commit.step, end)

    def _end_scope(
        self, row: ExecutionRow, commit: Commit, error: bytes | None, ends: list[EndRow], answer: Answer
    ) -> None:
        if len(ends) > 1:
            ends.sort(key=_by_path)
        if not commit.place:
            ending = Ending("completed", self._clock(), [end.data for end in ends])
            self._end(row, commit, ending, answer)
            return
        self._rows.forget_scope(row.id, scope_key(commit.place))
        self._fan_outs.fill(row.id, commit, error, ends, answer)

    def _fan_out(self, row: ExecutionRow, commit: Commit, operation: Open | Extend, answer: Answer) -> None:
        if isinstance(operation, Open):
            self._own(row.id, commit.place)
            self._fan_outs.open(row.id, commit, operation, answer)
        else:
            self._fan_outs.extend(row.id, commit, operation, answer)

    def _end(self, row: ExecutionRow, commit: Commit, ending: Ending, answer: Answer) -> None:
        row.ending = answer.ending = msgspec.structs.replace(ending, started_at=commit.started_at)
        row.closer = commit.step
        self._rows.save_execution(row)

    # --- merges ---

    def _arrive(self, row: ExecutionRow, commit: Commit, operation: ArriveAt, answer: Answer) -> None:
        self._own_merge(row.id, commit, operation.rule)
        if not self._merges.arrive(row.id, commit, operation, answer):
            self._settle(row, commit, Settle(-1), answer)

    def _skip(self, row: ExecutionRow, commit: Commit, operation: Skip, answer: Answer) -> None:
        self._own_merge(row.id, commit, operation.rule)
        self._merges.skip(row.id, commit, operation, answer)

    def _own_merge(self, execution: str, commit: Commit, rule: Rule) -> None:
        if self._rows.merge(execution, rule.merge) is None:
            self._own(execution, commit.place)

    # --- time-outs ---

    def _expire(self, row: ExecutionRow, commit: Commit, operation: Expire, answer: Answer) -> None:
        barrier = self._rows.barrier(row.id, operation.target)
        merge = self._rows.merge(row.id, operation.target)
        closer = barrier.closer if barrier else merge.closer if merge else ""
        if closer == commit.step:
            answer.release = barrier.release if barrier else None
            answer.opened = [merge.id] if merge else []
            return
        waiting = (barrier is not None and not barrier.closed) or (
            merge is not None and merge.state == "waiting"
        )
        if not waiting or self._postponed(row, operation, answer):
            return
        if barrier is not None:
            self._fan_outs.close(row.id, barrier, commit.step, "timeout", answer)
            self._rows.save_barrier(row.id, barrier)
        elif merge is not None:
            self._merges.close(row.id, merge, "timeout", commit.step, answer)
            self._rows.save_merge(row.id, merge)
            self._settle(row, commit, Settle(+1), answer)

    def _postponed(self, row: ExecutionRow, operation: Expire, answer: Answer) -> bool:
        if operation.idle is None:
            return False
        now = self._clock()
        quiet = max(row.touched, operation.since)
        due = quiet + operation.idle
        rests = self._rows.resting(row.id, now)
        if rests == math.inf:
            # Nobody knows when it wakes: it is looked at ever more rarely.
            due = now + max(operation.idle, now - quiet)
        elif rests is not None:
            due = rests + operation.idle
        if due <= now:
            return False
        timer = msgspec.structs.replace(operation.timer, due=due)
        self._rows.arm(row.id, timer, replace=True)
        answer.rearmed = True
        return True


def _by_path(end: EndRow) -> tuple[tuple[int, ...], str]:
    return tuple(int(part) for part in end.path.split(".") if part), end.node
