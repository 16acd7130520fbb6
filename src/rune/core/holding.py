"""What can be seen of an execution that has not ended, and of who works on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from rune.core.operations import Timer

__all__ = ["BarrierOpen", "Holding", "LeaseHeld", "Member", "MergeOpen", "Standing"]

Standing = Literal["alive", "ended"]
"""What State knows of an execution for which it keeps anything: `ended` is for the time of its tombstone."""


class LeaseHeld(Struct, frozen=True):
    """A step that somebody runs, or ran when the lease was granted."""

    step: str
    scope: str
    until: float


class BarrierOpen(Struct, frozen=True):
    """A fan-out that has not ended."""

    barrier: str
    scope: str
    total: int | None
    """None while it is being read how many there are."""
    done: int
    failed: int
    skipped: int
    published: int
    release: bytes = b""
    """The Task that goes on when it closes."""
    missing: tuple[int, ...] = ()
    """The first items that have not ended."""


class MergeOpen(Struct, frozen=True):
    """A merge that waits for more arrivals."""

    merge: str
    scope: str
    expected: int
    accounted: int
    live: int
    need: int | None = None
    arrivals: tuple[str, ...] = ()
    """The steps that arrived, and those that told of skipped arrivals, as `step!edge`."""


class Holding(Struct, frozen=True):
    """What keeps an execution alive; of each kind the first ones, and how many there are."""

    live: int = 1
    """Branches of the root scope."""
    touched: float = 0.0
    """When something last happened, to the second; 0 if nothing did that State had to know."""
    paused: bool = False
    ended: bool = False
    """It has ended, and is about to be buried."""
    parked: int = 0
    """Tasks that were parked because it is paused."""
    leases: tuple[LeaseHeld, ...] = ()
    timers: tuple[Timer, ...] = ()
    barriers: tuple[BarrierOpen, ...] = ()
    merges: tuple[MergeOpen, ...] = ()
    counts: Mapping[str, int] = {}
    """How many `leases`, `timers`, `barriers` and `merges` there are, where that is known."""


class Member(Struct, frozen=True, kw_only=True):
    """A process that takes part, as it last said."""

    id: str
    role: str
    host: str = ""
    pid: int = 0
    since: float = 0.0
    seen: float = 0.0
    version: str = ""
    concurrency: int = 0
    running: int = 0
    queues: tuple[str, ...] = ()
