"""A ledger on dictionaries, and what tests do with it."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.backends.memory import MemoryRows
from rune.core.ledger import Ledger
from rune.core.operations import (
    Answer,
    Commit,
    Lease,
    Open,
    Operation,
    Place,
    Rule,
    Settle,
    Timer,
)

__all__ = [
    "ALARM",
    "RELEASE",
    "Bench",
    "E",
    "arrive",
    "forked",
    "item",
    "live",
    "opened",
    "rule",
    "what_matters",
]

E = "exec"
RELEASE = b"release"
ALARM = Timer("alarm", 100.0, b"expire", sleeping=False)


class Bench:
    """A ledger on dictionaries, with a clock that stands still."""

    def __init__(self) -> None:
        self.now = 50.0
        self.rows = MemoryRows(lambda execution, timer: None)
        self.ledger = Ledger(self.rows, lambda: self.now)

    def do(self, step: str, *operations: Operation, place: Place = (), reads: str = "") -> Answer:
        """One commit."""
        (answer,) = self.ledger.apply(E, [Commit(step, place, operations, reads=reads)])
        return answer

    def twice(self, step: str, *operations: Operation, place: Place = (), reads: str = "") -> Answer:
        """One commit and its repetition, which must change nothing and say the same."""
        first = self.do(step, *operations, place=place, reads=reads)
        before = self.kept()
        again = self.do(step, *operations, place=place, reads=reads)
        assert self.kept() == before
        assert what_matters(again) == what_matters(first)
        return first

    def lease(self, step: str, until: float = 60.0, attempt: int = 1, place: Place = ()) -> Lease:
        (lease,) = self.ledger.lease(E, [(step, place)], attempt, until)
        return lease

    @property
    def timers(self) -> dict[str, Timer]:
        return self.rows.at(E).timers

    def slots(self, barrier: str = "b") -> dict[int, Any]:
        slots = self.rows.at(E).barriers[barrier].slots
        return {i: None if data is None else msgspec.json.decode(data) for i, data in slots.items()}

    def kept(self) -> Any:
        """All that is kept, to be compared."""
        found = _builtins(self.rows.at(E))
        found["scopes"] = {key: scope for key, scope in found["scopes"].items() if any(scope.values())}
        return found


def _builtins(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            return [type(value).__name__, *(_builtins(getattr(value, f)) for f in value.__struct_fields__)]
        case dict():
            return {key: _builtins(inner) for key, inner in value.items()}
        case set() | frozenset():
            return sorted(value)
        case list() | tuple():
            return [_builtins(inner) for inner in value]
        case _ if hasattr(value, "__slots__") and not isinstance(value, bytes | str):
            return {name: _builtins(getattr(value, name)) for name in value.__slots__}
    return value


def what_matters(answer: Answer) -> dict[str, Any]:
    """What a caller publishes by; a repeated answer may say besides that the scope is gone."""
    found = {name: getattr(answer, name) for name in ("release", "refill", "ending", "record")}
    return {**found, "opened": set(answer.opened), "dead": set(answer.dead)}


def opened(bench: Bench, total: int = 3, **rest: Any) -> None:
    """A fan-out."""
    fields = {"width": 1, "release": RELEASE, "published": total, **rest}
    bench.twice("s", Open("b", total, **fields))


def item(i: int, barrier: str = "b") -> Place:
    return ((barrier, i),)


def arrive(bench: Bench, i: int, result: Any = None, **rest: Any) -> Answer:
    data = msgspec.json.encode(i if result is None else result)
    return bench.twice(f"item{i}", Settle(-1, data, **rest), place=item(i))


def rule(expected: int, need: int | None = None, timer: Timer | None = None) -> Rule:
    return Rule("m", "m", expected, need, timer)


def forked(bench: Bench, branches: int) -> None:
    bench.do("fork", Settle(branches - 1))


def live(bench: Bench) -> int:
    row = bench.rows.scope(E, "")
    assert row is not None
    return row.live
