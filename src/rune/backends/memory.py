"""Broker and State in this process's memory: nothing to install, nothing kept."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import msgspec

from rune.core.ledger import Ledger
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, encode
from rune.core.ports import (
    Answer,
    Arrival,
    BarrierView,
    Commit,
    DeadLetter,
    Delivery,
    Lease,
    MergeView,
    Place,
    Timer,
)
from rune.core.rows import BarrierRow, EndRow, ExecutionRow, MergeRow, ScopeRow, StepRow

__all__ = ["MemoryBroker", "MemoryState", "barrier_view"]


class _Scope:
    """All that is keyed to one scope."""

    __slots__ = ("barriers", "ends", "merges", "row", "settled", "steps")

    def __init__(self) -> None:
        self.row: ScopeRow | None = None
        self.settled: set[str] = set()
        self.ends: dict[str, EndRow] = {}
        self.steps: set[str] = set()
        self.merges: set[str] = set()
        self.barriers: set[str] = set()


class _Barrier:
    __slots__ = ("refills", "row", "slots")

    def __init__(self, row: BarrierRow) -> None:
        self.row = row
        self.slots: dict[int, bytes | None] = {}
        self.refills: dict[str, tuple[int, int]] = {}


class _Execution:
    __slots__ = ("arrivals", "barriers", "merges", "parked", "row", "scopes", "steps", "timers", "values")

    def __init__(self, row: ExecutionRow) -> None:
        self.row = row
        self.scopes: dict[str, _Scope] = {}
        self.steps: dict[str, StepRow] = {}
        self.barriers: dict[str, _Barrier] = {}
        self.merges: dict[str, MergeRow] = {}
        self.arrivals: dict[str, dict[str, tuple[int, bytes | None]]] = {}
        self.timers: dict[str, Timer] = {}
        self.values: dict[str, bytes] = {}
        self.parked: dict[str, bytes] = {}

    def scope(self, key: str) -> _Scope:
        found = self.scopes.get(key)
        if found is None:
            found = self.scopes[key] = _Scope()
        return found


_NOTHING = _Execution(ExecutionRow(""))


class MemoryRows:
    """The ledger's rows, in dictionaries."""

    def __init__(self, on_arm: Callable[[str, Timer], None]) -> None:
        self.executions: dict[str, _Execution] = {}
        self._on_arm = on_arm

    def at(self, execution: str) -> _Execution:
        """An execution, known or new."""
        found = self.executions.get(execution)
        if found is None:
            found = self.executions[execution] = _Execution(ExecutionRow(execution))
        return found

    def of(self, execution: str) -> _Execution:
        """An execution to read from; of one that is not known, nothing is."""
        return self.executions.get(execution) or _NOTHING

    def execution(self, execution: str) -> ExecutionRow | None:
        found = self.executions.get(execution)
        return found.row if found else None

    def save_execution(self, row: ExecutionRow) -> None:
        self.at(row.id).row = row

    def scope(self, execution: str, key: str) -> ScopeRow | None:
        found = self.of(execution).scopes.get(key)
        return found.row if found else None

    def save_scope(self, execution: str, key: str, row: ScopeRow) -> None:
        self.at(execution).scope(key).row = row

    def forget_scope(self, execution: str, key: str) -> None:
        of = self.at(execution)
        scope = of.scopes.pop(key, None)
        if scope is None:
            return
        for step in scope.steps:
            of.steps.pop(step, None)
        for merge in scope.merges:
            of.merges.pop(merge, None)
            of.arrivals.pop(merge, None)
        for barrier in scope.barriers:
            of.barriers.pop(barrier, None)
            # Items that were left behind when the barrier closed early.
            for inner in [k for k in of.scopes if k.startswith(f"{barrier}.")]:
                self.forget_scope(execution, inner)

    def settled(self, execution: str, key: str, step: str) -> bool:
        return step in self.at(execution).scope(key).settled

    def add_settled(self, execution: str, key: str, step: str) -> None:
        self.at(execution).scope(key).settled.add(step)

    def ends(self, execution: str, key: str) -> list[EndRow]:
        return list(self.at(execution).scope(key).ends.values())

    def add_end(self, execution: str, key: str, step: str, row: EndRow) -> None:
        self.at(execution).scope(key).ends[step] = row

    def step(self, execution: str, step: str) -> StepRow | None:
        return self.of(execution).steps.get(step)

    def save_step(self, execution: str, step: str, row: StepRow) -> None:
        of = self.at(execution)
        of.steps[step] = row
        of.scope(row.scope).steps.add(step)

    def foresee(self, execution: str, barrier: str, items: Sequence[int]) -> None:
        return None

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        found = self.of(execution).barriers.get(barrier)
        return found.row if found else None

    def save_barrier(self, execution: str, row: BarrierRow) -> None:
        of = self.at(execution)
        if row.id not in of.barriers:
            of.barriers[row.id] = _Barrier(row)
            of.scope(row.parent).barriers.add(row.id)

    def has_slot(self, execution: str, barrier: str, item: int) -> bool:
        return item in self.at(execution).barriers[barrier].slots

    def add_slot(self, execution: str, barrier: str, item: int, data: bytes | None) -> None:
        self.at(execution).barriers[barrier].slots[item] = data

    def refill(self, execution: str, barrier: str, step: str) -> tuple[int, int] | None:
        return self.at(execution).barriers[barrier].refills.get(step)

    def add_refill(self, execution: str, barrier: str, step: str, items: tuple[int, int]) -> None:
        self.at(execution).barriers[barrier].refills[step] = items

    def merge(self, execution: str, merge: str) -> MergeRow | None:
        return self.of(execution).merges.get(merge)

    def save_merge(self, execution: str, row: MergeRow) -> None:
        of = self.at(execution)
        of.merges[row.id] = row
        of.scope(row.scope).merges.add(row.id)

    def has_arrival(self, execution: str, merge: str, member: str) -> bool:
        return member in self.at(execution).arrivals.get(merge, ())

    def add_arrival(self, execution: str, merge: str, member: str, order: int, payload: bytes | None) -> None:
        self.at(execution).arrivals.setdefault(merge, {})[member] = (order, payload)

    def arm(self, execution: str, timer: Timer, *, replace: bool = False) -> None:
        timers = self.at(execution).timers
        if replace or timer.id not in timers:
            timers[timer.id] = timer
            self._on_arm(execution, timer)

    def disarm(self, execution: str, timer: str) -> None:
        self.at(execution).timers.pop(timer, None)

    def resting(self, execution: str, now: float) -> bool:
        of = self.at(execution)
        return any(t.sleeping for t in of.timers.values()) or any(
            s.leased_until > now for s in of.steps.values()
        )


def barrier_view(row: BarrierRow | None) -> BarrierView | None:
    """What a closed barrier shows."""
    if row is None or not row.closed:
        return None
    folds = tuple(fold.result() for fold in row.folds)
    return BarrierView(row.total, row.succeeded, row.failed, row.skipped, row.failure, folds, row.first_error)


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
            self.rows.at(execution).values.update(values)

    async def get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        of = self.rows.executions.get(execution)
        return {hash: of.values[hash] for hash in hashes if hash in of.values} if of else {}

    async def barrier(self, execution: str, barrier: str) -> BarrierView | None:
        return barrier_view(self.rows.barrier(execution, barrier))

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
        self.rows.executions[execution] = tomb = _Execution(row)
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
        of = self.rows.at(execution)
        of.row.paused = False
        return list(of.parked.values())

    async def unparked(self, execution: str) -> None:
        self.rows.at(execution).parked.clear()

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        executions = self.rows.executions.items()
        return (
            frozenset(id for id, of in executions if of.row.buried),
            frozenset(id for id, of in executions if of.row.paused),
        )

    async def live(self) -> list[str]:
        return [id for id, of in self.rows.executions.items() if not of.row.buried]

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
                timer = msgspec.structs.replace(timer, due=until, execution=execution)
                heapq.heappush(self._due, (until, next(self._order), execution, id))
                self.rows.at(execution).timers[id] = timer
                claimed.append(timer)
        return claimed

    async def discharge(self, timers: Sequence[Timer]) -> None:
        self._ledger.woken(timers)
        for timer in timers:
            armed = self.rows.at(timer.execution).timers
            # One that was armed anew in the meantime stays.
            if armed.get(timer.id) == timer:
                del armed[timer.id]

    async def release(self, execution: str, timer: str) -> Timer | None:
        of = self.rows.executions.get(execution)
        found = of.timers.get(timer) if of else None
        return msgspec.structs.replace(found, execution=execution) if found else None

    async def next_due(self) -> float | None:
        while self._due:
            due, _, execution, id = self._due[0]
            timer = self.rows.at(execution).timers.get(id)
            if timer is not None and timer.due == due:
                return due
            heapq.heappop(self._due)
        return None

    async def armed(self, timeout: float | None) -> None:
        self._earlier.clear()
        try:
            await asyncio.wait_for(self._earlier.wait(), timeout)
        except TimeoutError:
            return


class MemoryBroker:
    """A priority queue, and lists for everything else."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._queue: list[tuple[int, int, Task, int, bool]] = []
        self._order = itertools.count()
        self._taken: dict[int, tuple[int, int, Task, int, bool]] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._completed: asyncio.Queue[CompletionMessage] = asyncio.Queue()
        self.dead: list[DeadLetter] = []
        self.listeners: list[Callable[[Sequence[NodeStatusMessage]], None]] = []

    @property
    def listened(self) -> bool:
        return bool(self.listeners)

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        for task in tasks:
            heapq.heappush(self._queue, (-task.priority, next(self._order), task, 0, False))
        for completion in completions:
            self._completed.put_nowait(completion)
        self._wake()

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        await self.publish(tasks)
        self._taken.pop(delivery.tag, None)
        self._wake()

    async def retry(self, delivery: Delivery, delay: float) -> None:
        entry = self._taken.pop(delivery.tag, None)
        if entry is None:
            return
        again = (entry[0], entry[1], entry[2], entry[3] + 1, False)
        loop = asyncio.get_running_loop()
        loop.call_later(delay, self._put, again)
        self._wake()

    def _put(self, entry: tuple[int, int, Task, int, bool]) -> None:
        heapq.heappush(self._queue, entry)
        self._wake()

    async def give_back(self, delivery: Delivery) -> None:
        entry = self._taken.pop(delivery.tag, None)
        if entry is not None:
            self._put((*entry[:4], False))

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        entry = self._taken.pop(delivery.tag, None)
        if entry is None:
            return
        _, _, task, retries, _ = entry
        self.dead.append(DeadLetter(reason, encode(task), task.current_node, task.execution_id, retries))
        self._wake()

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        for listener in self.listeners:
            listener(statuses)

    async def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        while True:
            while not self._queue or len(self._taken) >= prefetch:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
            entry = heapq.heappop(self._queue)
            tag = next(self._order)
            self._taken[tag] = entry
            yield Delivery(tag, entry[2], entry[4], entry[3])

    async def completions(self) -> AsyncIterator[CompletionMessage]:
        while True:
            yield await self._completed.get()

    async def completed(self, completion: CompletionMessage) -> None:
        return None

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
