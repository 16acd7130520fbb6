"""What can be seen of an execution that is kept in dictionaries."""

from __future__ import annotations

from itertools import islice

import msgspec

from rune.backends.memory.rows import Execution
from rune.core.holding import BarrierOpen, Holding, LeaseHeld, MergeOpen
from rune.core.rows import BarrierRow

__all__ = ["MISSING", "held"]

MISSING = 5
"""Items that are named of those which have not ended."""


def held(of: Execution, now: float, limit: int) -> Holding:
    """What keeps an execution alive."""
    leases = [
        LeaseHeld(step, row.scope, row.leased_until)
        for step, row in of.steps.items()
        if row.leased_until > now and row.record is None
    ]
    timers = [msgspec.structs.replace(timer, execution=of.row.id) for timer in of.timers.values()]
    timers.sort(key=lambda timer: (timer.due is None, timer.due))
    barriers = [b for b in of.barriers.values() if not b.row.closed]
    merges = [merge for merge in of.merges.values() if merge.state == "waiting"]
    root = of.scopes.get("")
    return Holding(
        live=root.row.live if root and root.row else 1,
        touched=of.row.touched,
        paused=of.row.paused,
        ended=of.row.ending is not None,
        parked=len(of.parked) + len(of.leaving),
        leases=tuple(leases[:limit]),
        timers=tuple(timers[:limit]),
        barriers=tuple(_barrier(b.row, b.slots) for b in barriers[:limit]),
        merges=tuple(
            MergeOpen(
                row.id,
                row.scope,
                row.expected,
                row.accounted,
                row.live,
                row.need,
                tuple(islice(of.arrivals.get(row.id, ()), limit)),
            )
            for row in merges[:limit]
        ),
        counts={
            "leases": len(leases),
            "timers": len(timers),
            "barriers": len(barriers),
            "merges": len(merges),
        },
    )


def _barrier(row: BarrierRow, slots: dict[int, bytes | None]) -> BarrierOpen:
    missing = tuple(islice((i for i in range(row.published) if i not in slots), MISSING))
    return BarrierOpen(
        row.id,
        row.parent,
        row.known_total,
        row.done,
        row.failed,
        row.skipped,
        row.published,
        row.release,
        missing,
    )
