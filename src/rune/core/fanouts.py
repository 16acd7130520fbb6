"""What a fan-out's barrier does as its items end: it fills, lets more of them start, is read on, and closes.

A part of the ledger, which see.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rune.core.operations import Answer, Commit, Extend, Open, Progress, scope_key
from rune.core.rows import BarrierRow, EndRow, Fold, Rows

__all__ = ["FanOuts"]


class FanOuts:
    """Carries out what concerns barriers, on rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def open(self, execution: str, commit: Commit, operation: Open, answer: Answer) -> None:
        """Open a barrier; whoever opened it before gets the old answer."""
        known = self._rows.barrier(execution, operation.barrier)
        if known is not None:
            self._answer_again(execution, known, commit.step, answer)
            return
        barrier = BarrierRow(
            operation.barrier,
            scope_key(commit.place),
            operation.total,
            operation.width,
            operation.release,
            operation.policy.tolerated,
            operation.policy.need_success,
            operation.window,
            operation.published,
            operation.keep_results,
            timer=operation.timer.id if operation.timer else "",
            refill=operation.refill,
            source="idle" if operation.lazy else "",
            folds=[],
        )
        if barrier.known_total == 0:
            self.close(execution, barrier, commit.step, "", answer)
        elif operation.timer:
            self._rows.arm(execution, operation.timer)
        self._rows.save_barrier(execution, barrier)
        if barrier.source:
            self._refill(execution, barrier, commit.step, answer)
            self._rows.save_barrier(execution, barrier)

    def fill(
        self, execution: str, commit: Commit, error: bytes | None, ends: list[EndRow], answer: Answer
    ) -> None:
        """An item has ended: its slot is filled, and what that means for the others decided."""
        barrier_id, item = commit.place[-1]
        barrier = self._rows.barrier(execution, barrier_id)
        if barrier is None:
            raise AssertionError(f"no barrier {barrier_id}")
        data: bytes | None = None
        if error is not None:
            barrier.failed += 1
            barrier.first_error = barrier.first_error or error
            data = b'{"error":' + error + b"}"
        elif ends:
            barrier.succeeded += 1
            _fold(barrier, ends[0].folds)
            data = _combined(ends) if barrier.keep_results else b"null"
        else:
            barrier.skipped += 1
        self._rows.add_slot(execution, barrier_id, item, data)
        answer.progress = Progress(barrier.done, barrier.known_total, barrier.failed, barrier.skipped)
        if error is not None and barrier.tolerated is not None and barrier.failed > barrier.tolerated:
            self.close(execution, barrier, commit.step, "items", answer)
        else:
            self._go_on(execution, barrier, commit.step, answer)
        self._rows.save_barrier(execution, barrier)

    def extend(self, execution: str, commit: Commit, operation: Extend, answer: Answer) -> None:
        """A lazy fan-out was read on, once by this step; if it was before, it gets the old answer."""
        barrier = self._rows.barrier(execution, commit.reads)
        if barrier is None or self._answer_again(execution, barrier, commit.step, answer):
            return
        if barrier.closed or barrier.source != "reading":
            return
        barrier.source = "" if operation.ended else "idle"
        barrier.total += operation.count
        barrier.refill = operation.refill or barrier.refill
        barrier.release = operation.release or barrier.release
        if operation.failure is not None:
            barrier.first_error = operation.failure
            self.close(execution, barrier, commit.step, "source", answer)
        else:
            self._go_on(execution, barrier, commit.step, answer)
        self._rows.save_barrier(execution, barrier, whole=True)

    def close(self, execution: str, barrier: BarrierRow, step: str, failure: str, answer: Answer) -> None:
        """Close a barrier; the row is for the caller to save."""
        barrier.closed = True
        barrier.closer = step
        barrier.failure = failure
        answer.release = barrier.release
        if barrier.timer:
            self._rows.disarm(execution, barrier.timer)

    def _answer_again(self, execution: str, barrier: BarrierRow, step: str, answer: Answer) -> bool:
        """Give a step the answer that it had from this barrier, if it had one."""
        if barrier.closed and barrier.closer == step:
            answer.release = barrier.release
            return True
        return barrier.window > 0 and self.refill_again(execution, barrier, step, answer)

    def refill_again(self, execution: str, barrier: BarrierRow, step: str, answer: Answer) -> bool:
        """Tell a step again what it was told to publish and to read, if it was."""
        given = self._rows.refill(execution, barrier.id, step)
        if given is None:
            return False
        first, stop, answer.reads = given
        answer.refill, answer.refill_task = (first, stop), barrier.refill
        return True

    def _go_on(self, execution: str, barrier: BarrierRow, step: str, answer: Answer) -> None:
        """Close a barrier whose items have all ended, or let more of them start."""
        if barrier.done == barrier.known_total:
            hopeless = barrier.need_success and barrier.failed > 0 and barrier.succeeded == 0
            self.close(execution, barrier, step, "items" if hopeless else "", answer)
        elif barrier.window:
            self._refill(execution, barrier, step, answer)

    def _refill(self, execution: str, barrier: BarrierRow, step: str, answer: Answer) -> None:
        # A quarter of the window at a time: fewer, fuller refills.
        least = max(1, barrier.window // 4)
        first = barrier.published
        if barrier.room < least:
            return
        barrier.published = min(barrier.total, first + barrier.room)
        # What is read has room to be published: a source is never read ahead of its window.
        reads = barrier.source == "idle" and barrier.published == barrier.total and barrier.room >= least
        if reads:
            barrier.source = "reading"
        elif barrier.published == first:
            return
        answer.refill, answer.refill_task = (first, barrier.published), barrier.refill
        answer.reads = reads and first < barrier.published
        self._rows.add_refill(execution, barrier.id, step, (*answer.refill, answer.reads))


def _fold(barrier: BarrierRow, values: Iterable[float | int]) -> None:
    for i, value in enumerate(values):
        if i == len(barrier.folds):
            barrier.folds.append(Fold())
        barrier.folds[i].add(value)


def _combined(ends: list[EndRow]) -> bytes:
    """One arrival as it is; several as an object by the node each came from, a list where one came twice."""
    if len(ends) == 1:
        return ends[0].data
    by_node: dict[str, list[bytes]] = {}
    for end in ends:
        by_node.setdefault(end.node, []).append(end.data)
    return msgspec.json.encode(
        {
            node: msgspec.Raw(data[0] if len(data) == 1 else b"[" + b",".join(data) + b"]")
            for node, data in by_node.items()
        }
    )
