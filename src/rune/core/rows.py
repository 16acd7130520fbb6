"""The rows that State keeps of an execution, and where a backend keeps them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from rune.core.operations import BarrierView, Ending, Timer

__all__ = [
    "BarrierRow",
    "EndRow",
    "ExecutionRow",
    "Fold",
    "MergeRow",
    "Refill",
    "Rows",
    "ScopeRow",
    "StepRow",
]

Refill = tuple[int, int, bool]
"""What a step was told: `Answer.refill` and `Answer.reads`."""


class ExecutionRow(Struct):
    """One execution: alive, ended, or only its tombstone."""

    id: str
    touched: float = 0.0
    closer: str = ""
    ending: Ending | None = None
    buried: bool = False
    paused: bool = False


class ScopeRow(Struct):
    """How many branches of a scope are alive, and its first error."""

    live: int
    error: bytes | None = None


class EndRow(Struct, frozen=True):
    """What a branch left when it ended."""

    path: str
    node: str
    data: bytes
    folds: tuple[float | int, ...] = ()


class StepRow(Struct):
    """What is known of one step: its outcome, its lease, its spent attempts."""

    scope: str
    record: bytes | None = None
    fence: int = 0
    leased_until: float = 0.0
    spent: int = 0
    turn: int = 0
    """When its record set variables, among all that did."""
    sets: tuple[tuple[str, bytes], ...] = ()
    """Variables that its record sets once the step is met."""


class Fold(Struct):
    """A running sum, count, least and greatest."""

    numerator: int = 0
    denominator: int = 1
    """The sum is kept as an exact fraction, so that it does not depend on the order of arrival."""
    whole: bool = True
    count: int = 0
    least: float | int = 0
    greatest: float | int = 0

    def add(self, value: float | int) -> None:
        n, d = value.as_integer_ratio()
        self.numerator, self.denominator = self.numerator * d + n * self.denominator, self.denominator * d
        if self.denominator != 1:
            # Denominators are powers of two: the common part is what both end with.
            shared = min(_zeros(self.numerator), _zeros(self.denominator)) if self.numerator else 0
            self.numerator >>= shared
            self.denominator = self.denominator >> shared if self.numerator else 1
        self.whole = self.whole and isinstance(value, int)
        self.least = value if self.count == 0 else min(self.least, value, key=_rank)
        self.greatest = value if self.count == 0 else max(self.greatest, value, key=_rank)
        self.count += 1

    def result(self) -> tuple[float | int, int, float | int, float | int]:
        total: float | int
        try:
            total = self.numerator if self.whole else self.numerator / self.denominator
        except OverflowError:
            total = math.inf if self.numerator > 0 else -math.inf
        return total, self.count, self.least, self.greatest


def _rank(value: float | int) -> tuple[float | int, str]:
    """An order in which 1 and 1.0 differ, so that who came first does not matter."""
    return value, repr(value)


def _zeros(n: int) -> int:
    return (n & -n).bit_length() - 1


class BarrierRow(Struct):
    """The fan-in tracker of one split."""

    id: str
    parent: str
    total: int
    width: int
    release: bytes
    tolerated: int | None = None
    need_success: bool = False
    window: int = 0
    published: int = 0
    keep_results: bool = True
    timer: str = ""
    refill: bytes = b""
    source: str = ""
    """Of a lazy one: `idle` while there may be more items than `total`, `reading` while somebody looks."""
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    closed: bool = False
    failure: str = ""
    closer: str = ""
    folds: list[Fold] = []
    first_error: bytes | None = None

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.skipped

    @property
    def room(self) -> int:
        """How many more items its window has room for."""
        return self.window - (self.published - self.done)

    @property
    def known_total(self) -> int | None:
        """How many items there are, once that is known."""
        return None if self.source else self.total

    def view(self) -> BarrierView | None:
        """What it shows once it has closed."""
        if not self.closed:
            return None
        folds = tuple(fold.result() for fold in self.folds)
        return BarrierView(
            self.total, self.succeeded, self.failed, self.skipped, self.failure, folds, self.first_error
        )


class MergeRow(Struct):
    """The arrivals at one merge, counted."""

    id: str
    scope: str
    expected: int
    need: int | None
    accounted: int = 0
    live: int = 0
    state: str = "waiting"
    """`waiting`, then `open`, `dead`, or why it failed: `timeout`, `impossible`."""
    closer: str = ""
    winner: str = ""
    timer: str = ""


class Rows(Protocol):
    """Where the ledger's rows are kept; `save_…` follows every change of a row."""

    def execution(self, execution: str) -> ExecutionRow | None: ...
    def save_execution(self, row: ExecutionRow) -> None: ...

    def scope(self, execution: str, key: str) -> ScopeRow | None: ...
    def save_scope(self, execution: str, key: str, row: ScopeRow) -> None: ...
    def forget_scope(self, execution: str, key: str) -> None:
        """Drop the scope with all that is keyed to it: settled steps, ends, steps, merges, barriers."""

    def settled(self, execution: str, key: str, step: str) -> bool: ...
    def add_settled(self, execution: str, key: str, step: str) -> None: ...
    def ends(self, execution: str, key: str) -> list[EndRow]: ...
    def add_end(self, execution: str, key: str, step: str, row: EndRow) -> None: ...

    def step(self, execution: str, step: str) -> StepRow | None: ...
    def save_step(self, execution: str, step: str, row: StepRow) -> None: ...

    def set_variables(self, execution: str, variables: Sequence[tuple[str, bytes]]) -> int:
        """Set variables in the next turn, and say which that is."""

    def sow_variables(self, execution: str, variables: Sequence[tuple[str, bytes]], turn: int) -> None:
        """Set variables as if in this turn: what a later one has set stays."""

    def foresee(self, execution: str, barrier: str, items: Sequence[int]) -> None:
        """These items of a barrier are about to be looked at, all of them: a chance to read them at once."""

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None: ...
    def save_barrier(self, execution: str, row: BarrierRow, *, whole: bool = False) -> None:
        """Without `whole`, only its counts and its state have changed since it was first saved."""

    def has_slot(self, execution: str, barrier: str, item: int) -> bool: ...
    def add_slot(self, execution: str, barrier: str, item: int, data: bytes | None) -> None: ...
    def refill(self, execution: str, barrier: str, step: str) -> Refill | None: ...
    def add_refill(self, execution: str, barrier: str, step: str, refill: Refill) -> None: ...

    def merge(self, execution: str, merge: str) -> MergeRow | None: ...
    def save_merge(self, execution: str, row: MergeRow) -> None: ...
    def has_arrival(self, execution: str, merge: str, member: str) -> bool: ...
    def add_arrival(
        self, execution: str, merge: str, member: str, order: int, payload: bytes | None
    ) -> None: ...

    def arm(self, execution: str, timer: Timer, *, replace: bool = False) -> None: ...
    def disarm(self, execution: str, timer: str) -> None: ...
    def resting(self, execution: str, now: float) -> float | None:
        """Until when a branch of the execution sleeps in a timer, infinity if nobody knows; `now` if one only
        runs under a lease; None if none does either."""
