"""What a merge does as branches arrive or are skipped: it waits, opens, or becomes impossible.

A part of the ledger, which see.
"""

from __future__ import annotations

from rune.core.operations import Answer, ArriveAt, Commit, Rule, Skip, scope_key
from rune.core.rows import MergeRow, Rows

__all__ = ["Merges"]


class Merges:
    """Carries out what concerns merges, on rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def arrive(self, execution: str, commit: Commit, operation: ArriveAt, answer: Answer) -> bool:
        """A branch arrives, once; False if it ends here, rather than going on for all that have arrived."""
        merge = self._at(execution, commit, operation.rule)
        if self._rows.has_arrival(execution, merge.id, commit.step):
            if merge.closer == commit.step:
                answer.opened.append(merge.id)
            answer.arrived = (merge.accounted, merge.expected)
            return True
        if merge.state == "waiting":
            self._rows.add_arrival(execution, merge.id, commit.step, operation.order, operation.payload)
            merge.live += 1
            merge.accounted += 1
            if merge.live == 1 and operation.rule.timer:
                merge.timer = operation.rule.timer.id
                self._rows.arm(execution, operation.rule.timer)
            self._decide(execution, merge, commit.step, answer)
            self._rows.save_merge(execution, merge)
            answer.arrived = (merge.accounted, merge.expected)
        if merge.closer != commit.step:
            return False
        merge.winner = commit.step
        self._rows.save_merge(execution, merge)
        return True

    def skip(self, execution: str, commit: Commit, operation: Skip, answer: Answer) -> None:
        """A branch will never come, or several; that is counted once."""
        merge = self._at(execution, commit, operation.rule)
        if self._rows.has_arrival(execution, merge.id, operation.member):
            if merge.closer == commit.step:
                (answer.dead if merge.state == "dead" else answer.opened).append(merge.id)
            return
        if merge.state != "waiting":
            return
        self._rows.add_arrival(execution, merge.id, operation.member, -1, None)
        merge.accounted += operation.weight
        self._decide(execution, merge, commit.step, answer)
        self._rows.save_merge(execution, merge)

    def close(self, execution: str, merge: MergeRow, state: str, step: str, answer: Answer) -> None:
        """Close a merge; the row is for the caller to save."""
        merge.state = state
        merge.closer = step
        (answer.dead if state == "dead" else answer.opened).append(merge.id)
        if merge.timer:
            self._rows.disarm(execution, merge.timer)

    def _at(self, execution: str, commit: Commit, rule: Rule) -> MergeRow:
        known = self._rows.merge(execution, rule.merge)
        return known or MergeRow(rule.merge, scope_key(commit.place), rule.expected, rule.need)

    def _decide(self, execution: str, merge: MergeRow, step: str, answer: Answer) -> None:
        left = merge.expected - merge.accounted
        if merge.live == 0:
            state = "waiting" if left else "dead"
        elif merge.need is None:
            state = "waiting" if left else "open"
        elif merge.live >= merge.need:
            state = "open"
        else:
            state = "impossible" if merge.live + left < merge.need else "waiting"
        if state != "waiting":
            self.close(execution, merge, state, step, answer)
