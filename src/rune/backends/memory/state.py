"""State in dictionaries, its timers in a heap."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rune.backends.memory.looking import held
from rune.backends.memory.rows import Execution, MemoryRows
from rune.core.holding import Holding, Standing
from rune.core.ledger import Ledger
from rune.core.operations import Answer, Arrival, BarrierView, Commit, Lease, MergeView, Place, Seed, Timer

__all__ = ["MemoryState"]


class MemoryState:
    """State in dictionaries."""

    epoch = ""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, str, str]] = []
        self._order = itertools.count()
        self._earlier = asyncio.Event()
        self.rows = MemoryRows(self._schedule)
        self._ledger = Ledger(self.rows, clock)

    async def check(self) -> bool:
        return True

    async def apply(self, execution: str, commits: Sequence[Commit]) -> list[Answer]:
        return self._ledger.apply(execution, commits)

    async def seed(self, execution: str, seeds: Sequence[Seed]) -> None:
        self._ledger.seed(execution, seeds)

    async def lease(
        self, execution: str, steps: Sequence[tuple[str, Place]], attempt: int, until: float
    ) -> list[Lease]:
        return self._ledger.lease(execution, steps, attempt, until)

    async def renew(self, execution: str, step: str, fence: int, until: float) -> bool:
        row = self.rows.step(execution, step)
        if row is None or row.fence != fence or row.record is not None:
            return False
        row.leased_until = until
        return True

    async def give_back(self, execution: str, steps: Sequence[tuple[str, int]]) -> None:
        for step, fence in steps:
            row = self.rows.step(execution, step)
            if row is not None and row.fence == fence and row.record is None:
                row.fence -= 1
                row.leased_until = 0.0

    async def put(self, execution: str, values: Mapping[str, bytes]) -> None:
        if self._ledger.takes(execution):
            stored = self.rows.at(execution).values
            stored.update({hash: data for hash, data in values.items() if hash not in stored})

    async def get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        of = self.rows.executions.get(execution)
        return {hash: of.values[hash] for hash in hashes if hash in of.values} if of else {}

    async def variables(self, execution: str) -> dict[str, bytes]:
        return dict(self.rows.of(execution).variables)

    async def barrier(self, execution: str, barrier: str) -> BarrierView | None:
        row = self.rows.barrier(execution, barrier)
        return row.view() if row else None

    async def slots(self, execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
        known = self.rows.of(execution).barriers.get(barrier)
        slots = known.slots if known else {}
        found = ((i, slots.get(i)) for i in range(start, start + limit))
        return [(i, data) for i, data in found if data is not None]

    async def merge(self, execution: str, merge: str) -> MergeView | None:
        row = self.rows.merge(execution, merge)
        if row is None or row.state in ("waiting", "dead"):
            return None
        arrivals = [
            Arrival(order, step, payload)
            for step, (order, payload) in self.rows.at(execution).arrivals.get(merge, {}).items()
            if payload is not None
        ]
        failed = row.state if row.state != "open" else ""
        return MergeView(arrivals, failed, row.expected, row.winner if row.need is not None else "")

    async def bury(self, execution: str, keep: Iterable[str], until: float) -> None:
        of = self.rows.at(execution)
        kept = {hash: of.values[hash] for hash in keep if hash in of.values}
        row = msgspec.structs.replace(of.row, buried=True, ending=None, paused=False)
        self.rows.executions[execution] = tomb = Execution(row)
        tomb.values = kept

    async def park(self, execution: str, step: str, task: bytes) -> bool:
        of = self.rows.executions.get(execution)
        if of is None or not of.row.paused:
            return False
        of.parked[step] = task
        return True

    async def pause(self, execution: str) -> bool:
        row = self.rows.execution(execution)
        if row is None:
            return False
        row.paused = not (row.buried or row.ending)
        return row.paused

    async def unpause(self, execution: str) -> list[bytes]:
        of = self.rows.executions.get(execution)
        if of is None:
            return []
        of.row.paused = False
        # Apart from what is parked when it is paused again before these are published.
        of.leaving |= of.parked
        of.parked.clear()
        return list(of.leaving.values())

    async def unparked(self, execution: str) -> None:
        of = self.rows.executions.get(execution)
        if of is not None:
            of.leaving.clear()

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        executions = self.rows.executions.items()
        return (
            frozenset(id for id, of in executions if of.row.buried),
            frozenset(id for id, of in executions if of.row.paused),
        )

    async def live(self) -> list[str]:
        return [id for id, of in self.rows.executions.items() if not of.row.buried]

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        known = {id: self.rows.execution(id) for id in executions}
        return {id: "ended" if row.buried else "alive" for id, row in known.items() if row is not None}

    async def holding(self, execution: str, limit: int) -> Holding | None:
        of = self.rows.executions.get(execution)
        return None if of is None or of.row.buried else held(of, self._clock(), limit)

    # --- timers ---

    def _schedule(self, execution: str, timer: Timer) -> None:
        if timer.due is None:
            return
        if not self._due or timer.due < self._due[0][0]:
            self._earlier.set()
        heapq.heappush(self._due, (timer.due, next(self._order), execution, timer.id))

    async def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        claimed: list[Timer] = []
        while self._due and self._due[0][0] <= now and len(claimed) < limit:
            due, _, execution, id = heapq.heappop(self._due)
            timer = self.rows.at(execution).timers.get(id)
            if timer is not None and timer.due == due:
                # Found again at `until`, unless it is discharged by then.
                was_due = timer.was_due or due
                timer = msgspec.structs.replace(timer, due=until, execution=execution, was_due=was_due)
                heapq.heappush(self._due, (until, next(self._order), execution, id))
                self.rows.at(execution).timers[id] = timer
                claimed.append(timer)
        return claimed

    async def discharge(self, timers: Sequence[Timer]) -> None:
        self._ledger.woken(timers)
        for timer in timers:
            armed = self.rows.at(timer.execution).timers
            known = armed.get(timer.id)
            # One that was armed anew in the meantime stays.
            if known is not None and known.due == timer.due:
                del armed[timer.id]

    async def timer(self, execution: str, id: str) -> Timer | None:
        of = self.rows.executions.get(execution)
        found = of.timers.get(id) if of else None
        return msgspec.structs.replace(found, execution=execution) if found else None

    async def wake(self, execution: str, timer: str, task: bytes, due: float) -> bool:
        of = self.rows.executions.get(execution)
        found = of.timers.get(timer) if of else None
        if found is None or found.due is not None:
            return found is not None and found.task == task
        woken = msgspec.structs.replace(found, due=due, task=task)
        self.rows.arm(execution, woken, replace=True)
        return True

    async def undue(self, execution: str, cursor: str) -> tuple[list[Timer], str]:
        timers = self.rows.of(execution).timers.values()
        return [msgspec.structs.replace(t, execution=execution) for t in timers if t.due is None], ""

    async def timers(self, limit: int) -> list[Timer]:
        soon = sorted(
            (due, execution, id)
            for due, _, execution, id in self._due
            if (timer := self.rows.of(execution).timers.get(id)) is not None and timer.due == due
        )
        return [
            msgspec.structs.replace(self.rows.of(execution).timers[id], execution=execution)
            for _, execution, id in soon[:limit]
        ]

    async def next_due(self) -> float | None:
        # From here on, whatever is armed to come earlier ends the sleep that follows.
        self._earlier.clear()
        while self._due:
            due, _, execution, id = self._due[0]
            timer = self.rows.at(execution).timers.get(id)
            if timer is not None and timer.due == due:
                return due
            heapq.heappop(self._due)
        return None

    async def armed(self, timeout: float | None) -> None:
        try:
            await asyncio.wait_for(self._earlier.wait(), timeout)
        except TimeoutError:
            return
