"""What tests ask of State, in few words."""

from __future__ import annotations

from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    Lease,
    Open,
    Operation,
    Place,
    Rule,
    Settle,
    Timer,
)
from rune.core.ports import State

__all__ = ["ALL", "ROOT", "E", "arm", "arrive", "ask", "lease", "leave", "opening"]

E = "exec_1"
ROOT: Place = ()


async def ask(state: State, step: str, *operations: Operation, place: Place = ROOT) -> Answer:
    """One step's commit."""
    (answer,) = await state.apply(E, [Commit(step, place, operations)])
    return answer


async def leave(state: State, step: str, item: int, end: bytes | None = b"1", barrier: str = "b") -> Answer:
    """The only branch of an item ends."""
    return await ask(state, step, Settle(-1, end), place=((barrier, item),))


async def lease(state: State, step: str, until: float, *, attempt: int = 1, place: Place = ROOT) -> Lease:
    (answer,) = await state.lease(E, [(step, place)], attempt, until)
    return answer


def opening(total: int, **rest: object) -> Open:
    return Open("b", total, rest.pop("width", 1), b"release", **rest)  # type: ignore[arg-type]


ALL = Rule("m", "n", 2)


def arrive(rule: Rule = ALL, order: int = 0, payload: bytes = b"{}") -> ArriveAt:
    return ArriveAt(rule, order, payload)


async def arm(state: State, id: str, due: float | None, task: bytes = b"task", execution: str = E) -> None:
    await state.apply(execution, [Commit("s", ROOT, [Arm(Timer(id, due, task))])])
