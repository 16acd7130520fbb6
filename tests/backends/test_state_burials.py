"""What State promises of values, pauses and burials, on every backend."""

from __future__ import annotations

from rune.core.operations import (
    Answer,
    End,
    Lease,
    Record,
    Settle,
    Timer,
)
from rune.core.ports import State
from tests.backends.asking import E, arrive, ask, lease, leave, opening
from tests.backends.conftest import Clock


async def test_values_are_found_by_execution_and_hash(state: State) -> None:
    await state.put(E, {"h1": b"1", "h2": b""})
    await state.put(E, {"h1": b"1", "h3": b"3"})
    await state.put("exec_2", {"h4": b"4"})
    assert await state.get(E, ["h1", "h2", "h3", "h4", "h5"]) == {"h1": b"1", "h2": b"", "h3": b"3"}


async def test_of_two_values_under_one_name_the_first_counts(state: State) -> None:
    await state.put(E, {"name": b"first"})
    await state.put(E, {"name": b"second", "other": b"1"})
    assert await state.get(E, ["name", "other"]) == {"name": b"first", "other": b"1"}


async def test_an_execution_lives_from_its_first_value_to_its_burial(state: State, clock: Clock) -> None:
    await state.put(E, {"h": b"1"})
    await state.put("exec_2", {"h": b"1"})
    assert await state.live() == [E, "exec_2"]
    await state.bury(E, [], clock.now + 100)
    assert await state.live() == ["exec_2"]
    assert await state.news() == (frozenset({E}), frozenset())


async def test_burial_leaves_a_tombstone_and_the_values_to_keep(state: State, clock: Clock) -> None:
    await state.put(E, {"kept": b"1", "lost": b"2"})
    await ask(state, "split", Record(b"1"), opening(2, timer=Timer("t", clock.now + 1, b"task")))
    await leave(state, "s0", 0)
    await ask(state, "fork", Settle(+1))
    await ask(state, "x", arrive())
    await state.bury(E, ["kept", "unknown"], clock.now + 100)
    assert await state.get(E, ["kept", "lost"]) == {"kept": b"1"}
    assert await state.barrier(E, "b") is None
    assert await state.merge(E, "m") is None
    assert await state.next_due() is None
    assert await state.timer(E, "t") is None
    assert await ask(state, "split", Record(b"1")) == Answer(gone=True)
    assert await leave(state, "s1", 1) == Answer(gone=True)
    assert await lease(state, "z", clock.now + 1) == Lease(gone=True)
    await state.bury(E, ["kept"], clock.now + 100)
    assert await state.get(E, ["kept"]) == {"kept": b"1"}


async def test_many_values_are_kept(state: State, clock: Clock) -> None:
    values = {f"h{i}": bytes([i % 256]) * 3000 for i in range(1200)}
    await state.put(E, values)
    await state.put(E, {"lost": b"1"})
    await state.bury(E, values, clock.now + 100)
    assert await state.get(E, [*values, "lost"]) == values


async def test_a_paused_execution_parks_its_tasks(state: State) -> None:
    await state.put(E, {"h": b"1"})
    assert not await state.park(E, "s", b"task")
    assert await state.pause(E)
    assert await state.news() == (frozenset(), frozenset({E}))
    assert await state.park(E, "s", b"one")
    assert await state.park(E, "t", b"two")
    assert await state.park(E, "s", b"one")
    for _ in range(2):
        assert sorted(await state.unpause(E)) == [b"one", b"two"]
    assert not await state.park(E, "u", b"three")
    await state.unparked(E)
    assert await state.unpause(E) == []
    assert await state.news() == (frozenset(), frozenset())


async def test_what_is_parked_before_the_last_was_published_stays_parked(state: State) -> None:
    await state.put(E, {"h": b"1"})
    assert await state.pause(E)
    assert await state.park(E, "s", b"one")
    assert await state.unpause(E) == [b"one"]
    assert await state.pause(E)
    assert await state.park(E, "s", b"again")
    await state.unparked(E)
    assert await state.unpause(E) == [b"again"]


async def test_what_has_ended_cannot_be_paused(state: State, clock: Clock) -> None:
    await ask(state, "s", End("failed"))
    assert not await state.pause(E)
    await state.bury(E, [], clock.now + 100)
    assert not await state.pause(E)
    assert await state.news() == (frozenset({E}), frozenset())
