"""Variables of an execution: set with a record, read by whoever comes later; on every backend."""

from __future__ import annotations

from rune.core.operations import Commit, Record
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"


def setting(step: str, outcome: bytes, *sets: tuple[str, bytes], fence: int = 0) -> Commit:
    return Commit(step, (), [Record(outcome, fence, sets)])


async def test_who_is_recorded_last_has_the_say(state: State) -> None:
    assert await state.variables(E) == {}
    await state.apply(E, [setting("s", b"1", ("a", b"1"), ("b", b'"\xc3\xa9\x00"'))])
    await state.apply(E, [setting("t", b"2", ("b", b"2"))])
    assert await state.variables(E) == {"a": b"1", "b": b"2"}
    assert await state.variables("exec_2") == {}


async def test_a_repeated_record_sets_nothing_again(state: State) -> None:
    first = setting("s", b"1", ("a", b"1"))
    await state.apply(E, [first])
    await state.apply(E, [setting("t", b"2", ("a", b"2"))])
    await state.apply(E, [first, setting("s", b"another", ("a", b"3"))])
    assert await state.variables(E) == {"a": b"2"}


async def test_a_lost_lease_sets_nothing(state: State, clock: Clock) -> None:
    await state.lease(E, [("s", ())], 1, clock.now + 1)
    clock.advance(2)
    await state.lease(E, [("s", ())], 1, clock.now + 1)
    (answer,) = await state.apply(E, [setting("s", b"late", ("a", b"1"), fence=1)])
    assert answer.gone
    assert await state.variables(E) == {}


async def test_they_go_with_the_execution(state: State, clock: Clock) -> None:
    await state.apply(E, [setting("s", b"1", ("a", b"1"))])
    await state.bury(E, [], clock.now + 100)
    assert await state.variables(E) == {}
