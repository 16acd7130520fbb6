"""Variables that steps set which stand in an execution made of an earlier one; on every backend."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rune.backends.memory import MemoryState
from rune.core.operations import Commit, Lease, Open, Place, Record, Seed, Settle
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"
ROOT: Place = ()


def stood(step: str, turn: int, *sets: tuple[str, bytes], place: Place = ROOT) -> Seed:
    return Seed(step, place, b"outcome of %s" % step.encode(), sets=sets, turn=turn)


async def met(state: State, clock: Clock, step: str, place: Place = ROOT) -> Lease:
    (lease,) = await state.lease(E, [(step, place)], 1, clock.now + 10)
    return lease


async def sets(state: State, step: str, name: str, data: bytes) -> int:
    (answer,) = await state.apply(E, [Commit(step, ROOT, [Record(step.encode(), 0, ((name, data),))])])
    return answer.turn


async def test_each_that_sets_variables_has_its_turn_and_keeps_it(state: State, clock: Clock) -> None:
    assert [await sets(state, step, "a", b"1") for step in ("s", "t", "s", "u")] == [1, 2, 1, 3]
    assert await met(state, clock, "t") == Lease(record=b"t", turn=2)
    (answer,) = await state.apply(E, [Commit("t", ROOT, [Record(b"another", 0, (("a", b"9"),))])])
    assert (answer.record, answer.turn) == (b"t", 2)
    (answer,) = await state.apply(E, [Commit("none", ROOT, [Record(b"sets nothing")])])
    assert answer.turn == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("together", [False, True])
async def test_what_stands_is_set_as_it_was_in_whatever_order_it_is_told(
    state: State, order: tuple[int, ...], together: bool
) -> None:
    seeds = [
        stood("s", 3, ("a", b"3"), ("b", b'"\xc3\xa9\x00"')),
        stood("t", 7, ("a", b"7"), ("c", b"7")),
        stood("u", 5, ("a", b"5"), ("c", b"5"), ("d", b"5")),
    ]
    chosen = [seeds[i] for i in order]
    for some in [chosen] if together else [[seed] for seed in chosen]:
        await state.seed(E, some)
    assert await state.variables(E) == {"a": b"7", "b": b'"\xc3\xa9\x00"', "c": b"7", "d": b"5"}


async def test_what_runs_comes_after_what_stands(state: State, clock: Clock) -> None:
    seeds = [stood("s", 4, ("a", b"4")), stood("t", 2, ("b", b"2"))]
    await state.seed(E, seeds)
    assert await met(state, clock, "t") == Lease(record=b"outcome of t", turn=2)
    assert await sets(state, "fresh", "b", b'"new"') == 5
    # Told again, and more of it: what was set since stays.
    await state.seed(E, [*seeds, stood("late", 3, ("a", b"3"), ("b", b"3"), ("c", b"3"))])
    assert await state.variables(E) == {"a": b"4", "b": b'"new"', "c": b"3"}


async def test_what_stands_behind_a_step_that_runs_is_set_when_it_is_met(state: State, clock: Clock) -> None:
    seeds = [stood("s", 0, ("a", b"old")), stood("never", 0, ("b", b"old")), stood("t", 6, ("a", b"6"))]
    await state.seed(E, seeds)
    assert await state.variables(E) == {"a": b"6"}
    assert await met(state, clock, "s") == Lease(record=b"outcome of s", turn=7)
    assert await state.variables(E) == {"a": b"old"}
    await sets(state, "fresh", "a", b"new")
    # Once, however often it is delivered or told.
    assert (await met(state, clock, "s")).turn == 7
    await state.seed(E, seeds)
    assert (await met(state, clock, "s")).turn == 7
    assert await state.variables(E) == {"a": b"new"}


async def test_an_item_sets_what_it_set_when_it_is_met(state: State, clock: Clock) -> None:
    place: Place = (("b", 3),)
    await state.seed(E, [stood("s", 0, ("a", b"1"), place=place)])
    await state.apply(E, [Commit("b", ROOT, [Open("b", 5, 1, b"release", published=5)])])
    assert await state.variables(E) == {}
    assert (await met(state, clock, "s", place)).turn == 1
    assert await state.variables(E) == {"a": b"1"}


async def test_an_execution_that_has_ended_is_given_nothing(state: State, clock: Clock) -> None:
    await state.seed(E, [stood("s", 1, ("a", b"1")), stood("t", 0, ("b", b"1"))])
    await state.bury(E, [], clock.now + 100)
    await state.seed(E, [stood("u", 2, ("a", b"2"))])
    assert await state.variables(E) == {}


class Walk:
    """Random steps that set variables, stand, are met and come again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def sets(self) -> tuple[tuple[str, bytes], ...]:
        names = self.random.sample("abc", self.random.randrange(3))
        return tuple((name, self.random.choice([b"1", b'"two"', b"\xff\x00"])) for name in names)

    def ask(self, until: float) -> tuple[str, Any]:
        pick = self.random.choice
        step = f"s{self.random.randrange(12)}"
        match pick(["apply", "apply", "lease", "seed"]):
            case "apply":
                return "apply", ([Commit(step, ROOT, [Record(pick([b"1", b"2"]), 0, self.sets())])],)
            case "lease":
                return "lease", ([(step, ROOT)], 1, until)
        sets = self.sets()
        turn = pick([0, 0, 1, 2, 5, 9]) if sets else 0
        return "seed", ([Seed(step, ROOT, pick([b"1", b"2"]), sets=sets, turn=turn)],)


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_comes_in_whatever_order_all_agree(state: State, clock: Clock, seed: int) -> None:
    for number in range(20):
        execution, reference, walk = f"e{number}", MemoryState(clock), Walk(100 * seed + number)
        await state.apply(execution, [Commit("#begin", ROOT, [Settle(+1)])])
        await reference.apply(execution, [Commit("#begin", ROOT, [Settle(+1)])])
        for turn in range(30):
            name, question = walk.ask(clock.now + 10)
            expected = await getattr(reference, name)(execution, *question)
            assert await getattr(state, name)(execution, *question) == expected, (number, turn, question)
            assert await state.variables(execution) == await reference.variables(execution), (number, turn)
