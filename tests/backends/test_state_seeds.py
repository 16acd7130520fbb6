"""What is known of steps before they exist: on every backend."""

from __future__ import annotations

import pytest

from rune.core.operations import Commit, Lease, Open, Place, Record, Seed, Settle
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"
ROOT: Place = ()
ITEM: Place = (("b", 3),)


async def leased(state: State, clock: Clock, step: str, place: Place = ROOT) -> Lease:
    (lease,) = await state.lease(E, [(step, place)], 1, clock.now + 10)
    return lease


async def opened(state: State) -> None:
    await state.apply(E, [Commit("b", ROOT, [Open("b", 5, 2, b"release", published=5)])])


async def test_a_seeded_step_is_not_run_but_has_its_outcome(state: State, clock: Clock) -> None:
    await state.seed(E, [Seed("s", ROOT, b"one"), Seed("t", ROOT, b"two")])
    assert await leased(state, clock, "s") == Lease(record=b"one")
    assert await leased(state, clock, "t") == Lease(record=b"two")
    assert (await leased(state, clock, "other")).fence == 1


async def test_seeding_again_changes_nothing(state: State, clock: Clock) -> None:
    await leased(state, clock, "running")
    await state.apply(E, [Commit("ran", ROOT, [Record(b"found")])])
    for _ in range(2):
        await state.seed(E, [Seed(step, ROOT, b"one") for step in ("s", "ran", "running")])
    await state.seed(E, [Seed("s", ROOT, b"another")])
    assert await leased(state, clock, "s") == Lease(record=b"one")
    assert await leased(state, clock, "ran") == Lease(record=b"found")
    assert (await leased(state, clock, "running")).busy_until == clock.now + 10


async def test_an_item_may_be_seeded_before_its_fan_out_opens(state: State, clock: Clock) -> None:
    await state.seed(E, [Seed("s", ITEM, b"one")])
    assert (await leased(state, clock, "s", ITEM)).gone
    await opened(state)
    assert await leased(state, clock, "s", ITEM) == Lease(record=b"one")
    # Two branches of the item end, as the fan-out says, whatever was seeded.
    (first, second) = await state.apply(
        E, [Commit(f"end{i}", ITEM, [Settle(-1, b"%d" % i, f".{i}", f"n{i}")]) for i in range(2)]
    )
    assert first.progress is None
    assert second.progress is not None


async def test_a_seed_goes_with_its_item(state: State, clock: Clock) -> None:
    await state.seed(E, [Seed("s", ITEM, b"one")])
    await opened(state)
    await leased(state, clock, "s", ITEM)
    await state.apply(E, [Commit(f"end{i}", ITEM, [Settle(-1, b"1")]) for i in range(2)])
    assert (await leased(state, clock, "s", ITEM)).gone


@pytest.mark.parametrize("met", [False, True])
async def test_nothing_of_the_seeds_outlives_the_execution(state: State, clock: Clock, met: bool) -> None:
    inner: Place = (*ITEM, ("c", 0))
    await state.seed(E, [Seed("r", ROOT, b"0"), Seed("s", ITEM, b"1"), Seed("t", inner, b"2")])
    if met:
        await opened(state)
        await leased(state, clock, "s", ITEM)
    await state.bury(E, [], clock.now + 100)
    await state.seed(E, [Seed("late", ITEM, b"3")])
    assert await state.standings([E]) == {E: "ended"}
    assert (await leased(state, clock, "r")).gone
    clock.advance(200)


async def test_many_seeds_are_no_trouble(state: State, clock: Clock) -> None:
    total = 5000
    for at in range(0, total, 500):
        await state.seed(E, [Seed(f"s{i}", (("b", i),), b"%d" % i) for i in range(at, at + 500)])
    await state.apply(E, [Commit("b", ROOT, [Open("b", total, 1, b"release", published=total)])])
    asked: list[tuple[str, Place]] = [(f"s{i}", (("b", i),)) for i in range(0, total, 100)]
    leases = await state.lease(E, asked, 1, clock.now + 10)
    assert [lease.record for lease in leases] == [b"%d" % i for i in range(0, total, 100)]
    await state.bury(E, [], clock.now + 100)
