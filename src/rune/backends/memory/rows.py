"""The ledger's rows, in dictionaries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rune.core.operations import Timer
from rune.core.rows import BarrierRow, EndRow, ExecutionRow, MergeRow, Refill, ScopeRow, StepRow

__all__ = ["Execution", "MemoryRows"]


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
        self.refills: dict[str, Refill] = {}


class Execution:
    __slots__ = (
        "arrivals",
        "barriers",
        "leaving",
        "merges",
        "parked",
        "row",
        "scopes",
        "steps",
        "timers",
        "turns",
        "values",
        "variables",
    )

    def __init__(self, row: ExecutionRow) -> None:
        self.row = row
        self.scopes: dict[str, _Scope] = {}
        self.steps: dict[str, StepRow] = {}
        self.barriers: dict[str, _Barrier] = {}
        self.merges: dict[str, MergeRow] = {}
        self.arrivals: dict[str, dict[str, tuple[int, bytes | None]]] = {}
        self.timers: dict[str, Timer] = {}
        self.values: dict[str, bytes] = {}
        self.variables: dict[str, bytes] = {}
        self.turns: dict[str, int] = {}
        """When each variable was set."""
        self.parked: dict[str, bytes] = {}
        self.leaving: dict[str, bytes] = {}
        """What was parked, until it has been published."""

    def scope(self, key: str) -> _Scope:
        found = self.scopes.get(key)
        if found is None:
            found = self.scopes[key] = _Scope()
        return found


_NOTHING = Execution(ExecutionRow(""))


class MemoryRows:
    """The ledger's rows, in dictionaries."""

    def __init__(self, on_arm: Callable[[str, Timer], None]) -> None:
        self.executions: dict[str, Execution] = {}
        self._on_arm = on_arm

    def at(self, execution: str) -> Execution:
        """An execution, known or new."""
        found = self.executions.get(execution)
        if found is None:
            found = self.executions[execution] = Execution(ExecutionRow(execution))
        return found

    def of(self, execution: str) -> Execution:
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

    def set_variables(self, execution: str, variables: Sequence[tuple[str, bytes]]) -> int:
        turn = 1 + max(self.of(execution).turns.values(), default=0)
        self.sow_variables(execution, variables, turn)
        return turn

    def sow_variables(self, execution: str, variables: Sequence[tuple[str, bytes]], turn: int) -> None:
        of = self.at(execution)
        for name, data in variables:
            if turn > of.turns.get(name, 0):
                of.variables[name], of.turns[name] = data, turn

    def foresee(self, execution: str, barrier: str, items: Sequence[int]) -> None:
        return None

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        found = self.of(execution).barriers.get(barrier)
        return found.row if found else None

    def save_barrier(self, execution: str, row: BarrierRow, *, whole: bool = False) -> None:
        of = self.at(execution)
        if row.id not in of.barriers:
            of.barriers[row.id] = _Barrier(row)
            of.scope(row.parent).barriers.add(row.id)

    def has_slot(self, execution: str, barrier: str, item: int) -> bool:
        return item in self.at(execution).barriers[barrier].slots

    def add_slot(self, execution: str, barrier: str, item: int, data: bytes | None) -> None:
        self.at(execution).barriers[barrier].slots[item] = data

    def refill(self, execution: str, barrier: str, step: str) -> Refill | None:
        return self.at(execution).barriers[barrier].refills.get(step)

    def add_refill(self, execution: str, barrier: str, step: str, refill: Refill) -> None:
        self.at(execution).barriers[barrier].refills[step] = refill

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

    def resting(self, execution: str, now: float) -> float | None:
        of = self.at(execution)
        rests = [math.inf if t.due is None else t.due for t in of.timers.values() if t.sleeping]
        rests += [now for step in of.steps.values() if step.leased_until > now]
        return max(now, *rests) if rests else None
