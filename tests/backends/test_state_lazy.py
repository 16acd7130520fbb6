"""What State promises of fan-outs whose source is read while they run, on every backend."""

from __future__ import annotations

import pytest

from rune.core.operations import (
    Answer,
    BarrierView,
    Commit,
    Expire,
    Extend,
    Open,
    Operation,
    Place,
    Progress,
    Record,
    Settle,
    Timer,
    TryAgain,
)
from rune.core.outcome import Policy
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"
ROOT: Place = ()
TOLERANT = Policy()


async def ask(
    state: State, step: str, *operations: Operation, place: Place = ROOT, reads: str = ""
) -> Answer:
    """One step's commit."""
    (answer,) = await state.apply(E, [Commit(step, place, operations, reads=reads)])
    return answer


async def leave(
    state: State, item: int, end: bytes | None = b"1", *, error: bytes | None = None, place: Place = ROOT
) -> Answer:
    """The only branch of an item ends."""
    return await ask(state, f"i{item}", Settle(-1, end, error=error), place=(*place, ("b", item)))


async def opened(state: State, window: int = 2, place: Place = ROOT, policy: Policy = TOLERANT) -> Answer:
    """A lazy fan-out."""
    lazy = Open("b", 0, 1, b"release", policy, window, refill=b"read from the start", lazy=True)
    return await ask(state, "split", lazy, place=place)


async def read(state: State, number: int, extend: Extend, place: Place = ROOT) -> Answer:
    """The source was read on; asking twice is asking once."""
    first = await ask(state, f"r{number}", Record(b"%d" % number), extend, place=place, reads="b")
    again = await ask(state, f"r{number}", Record(b"%d" % number), extend, place=place, reads="b")
    told = (first.refill, first.reads, first.refill_task, first.release)
    assert (again.refill, again.reads, again.refill_task, again.release) == told
    return first


def portion(number: int, count: int, *, ended: bool = False) -> Extend:
    return Extend(count, ended, b"portion %d" % number, b"all known" if ended else b"")


async def test_whoever_opens_it_is_told_to_read(state: State) -> None:
    first = await opened(state)
    assert (first.refill, first.refill_task, first.release) == ((0, 0), b"read from the start", None)
    again = await opened(state)
    assert (again.refill, again.refill_task) == ((0, 0), b"read from the start")
    assert await state.barrier(E, "b") is None


async def test_what_was_read_is_published_as_far_as_there_is_room(state: State) -> None:
    await opened(state)
    answer = await read(state, 0, portion(0, 3))
    assert (answer.refill, answer.refill_task) == ((0, 2), b"portion 0")


async def test_it_is_read_on_by_one_once_all_are_published(state: State) -> None:
    await opened(state)
    await read(state, 0, portion(0, 3))
    first, second, third = await leave(state, 0), await leave(state, 1), await leave(state, 2)
    assert (first.refill, second.refill, third.refill) == ((2, 3), (3, 3), None)
    assert not first.reads, "there is no room to read for"
    assert not second.reads, "there is nothing to publish"
    assert second.refill_task == b"portion 0"
    assert first.progress == Progress(1, None, 0, 0)
    assert third.release is None, "there may be more"
    again = await leave(state, 1)
    assert (again.gone, again.refill, again.refill_task) == (True, (3, 3), b"portion 0")
    answer = await read(state, 1, portion(1, 1, ended=True))
    assert (answer.refill, answer.refill_task) == ((3, 4), b"portion 1")
    last = await leave(state, 3)
    assert (last.progress, last.release) == (Progress(4, 4, 0, 0), b"all known")
    assert await state.barrier(E, "b") == BarrierView(4, 4, 0, 0)
    assert [item for item, _ in await state.slots(E, "b", 0, 10)] == [0, 1, 2, 3]


async def test_while_there_is_room_it_is_read_on_at_once(state: State) -> None:
    await opened(state, window=5)
    first = await read(state, 0, portion(0, 2))
    assert (first.refill, first.reads, first.refill_task) == ((0, 2), True, b"portion 0")
    second = await read(state, 1, portion(1, 2))
    assert (second.refill, second.reads, second.refill_task) == ((2, 4), True, b"portion 1")
    third = await read(state, 2, portion(2, 2))
    assert (third.refill, third.reads) == ((4, 5), False), "one of them has to wait"
    assert await read(state, 3, portion(3, 2)) == Answer(), "nobody was told to read that"


async def test_who_was_told_to_publish_and_to_read_is_told_so_again(state: State) -> None:
    await opened(state, window=4)
    await read(state, 0, portion(0, 2))
    await read(state, 1, portion(1, 1))
    await leave(state, 0)
    late = await ask(state, "r0", Record(b"0"), portion(0, 2), reads="b")
    assert (late.refill, late.reads) == ((0, 2), True)
    assert late.refill_task == b"portion 1", "from which those before can be found"


async def test_reading_ahead_is_bounded_by_the_window(state: State) -> None:
    """As without a limit of one's own: portions of 4,096, and 16,384 items in flight."""
    await opened(state, window=16_384)
    told = [await read(state, number, portion(number, 4096)) for number in range(5)]
    assert [answer.reads for answer in told] == [True, True, True, False, False]
    assert [answer.refill for answer in told[2:]] == [(8192, 12288), (12288, 16384), None]


async def test_two_read_at_no_time(state: State) -> None:
    await opened(state, window=3)
    await read(state, 0, portion(0, 1))
    assert (await leave(state, 0)).refill is None
    late = await ask(state, "r0", Record(b"0"), portion(0, 1), reads="b")
    assert (late.refill, late.reads) == ((0, 1), True), "what it was told before"
    answer = await read(state, 1, portion(1, 0, ended=True))
    assert (answer.refill, answer.release) == (None, b"all known")


async def test_an_empty_portion_has_it_read_on(state: State) -> None:
    await opened(state)
    answer = await read(state, 0, portion(0, 0))
    assert (answer.refill, answer.refill_task) == ((0, 0), b"portion 0")
    answer = await read(state, 1, portion(1, 1))
    assert (answer.refill, answer.reads, answer.refill_task) == ((0, 1), True, b"portion 1")


async def test_an_empty_source_closes_it(state: State) -> None:
    await opened(state)
    answer = await read(state, 0, portion(0, 0, ended=True))
    assert (answer.refill, answer.release) == (None, b"all known")
    assert await state.barrier(E, "b") == BarrierView(0, 0, 0, 0)


async def test_an_end_that_is_read_late_closes_it(state: State) -> None:
    await opened(state)
    await read(state, 0, portion(0, 1))
    await leave(state, 0)
    answer = await read(state, 1, portion(1, 0, ended=True))
    assert (answer.refill, answer.release) == (None, b"all known")


async def test_an_end_that_is_read_early_leaves_it_to_the_last_item(state: State) -> None:
    await opened(state)
    answer = await read(state, 0, portion(0, 1))
    assert (answer.refill, answer.reads) == ((0, 1), True)
    early = await read(state, 1, portion(1, 0, ended=True))
    assert (early.refill, early.release) == (None, None)
    assert (await leave(state, 0)).release == b"all known"


@pytest.mark.parametrize("need_success", [True, False])
async def test_whether_one_had_to_succeed_is_asked_when_the_end_is_read(
    state: State, need_success: bool
) -> None:
    await opened(state, policy=Policy(need_success=need_success))
    await read(state, 0, portion(0, 1))
    await leave(state, 0, error=b"{}")
    await read(state, 1, portion(1, 0, ended=True))
    view = await state.barrier(E, "b")
    assert view is not None
    assert (view.failure, view.failed) == ("items" if need_success else "", 1)


async def test_a_reading_that_failed_closes_it(state: State) -> None:
    await opened(state)
    await read(state, 0, portion(0, 2))
    await leave(state, 0, error=b'"of an item"')
    await leave(state, 1)
    answer = await read(state, 1, Extend(failure=b'"of the source"'))
    assert (answer.refill, answer.release) == (None, b"release")
    view = await state.barrier(E, "b")
    assert view is not None
    assert (view.failure, view.first_error, view.total) == ("source", b'"of the source"', 2)


async def test_who_reads_a_closed_one_changes_nothing(state: State) -> None:
    await opened(state, policy=Policy(tolerated=0), window=4)
    await read(state, 0, portion(0, 1))
    failed = await leave(state, 0, error=b"{}")
    assert failed.release == b"release"
    assert await read(state, 1, portion(1, 5)) == Answer()
    view = await state.barrier(E, "b")
    assert view is not None
    assert view.total == 1


async def test_another_record_stands_and_nothing_is_extended(state: State) -> None:
    await opened(state)
    await read(state, 0, portion(0, 1))
    answer = await ask(state, "r0", Record(b"other"), portion(0, 9), reads="b")
    assert (answer.record, answer.refill) == (b"0", None)


async def test_it_may_time_out_while_it_is_read(state: State, clock: Clock) -> None:
    await opened(state)
    answer = await ask(state, "expire", Expire("b", Timer("t", None, b"", sleeping=False)))
    assert answer.release == b"release"
    assert await read(state, 0, portion(0, 2, ended=True)) == Answer()


async def test_nobody_knows_its_total_until_the_end_is_read(state: State) -> None:
    await opened(state)
    await read(state, 0, portion(0, 3))
    seen = await state.holding(E, 10)
    assert seen is not None
    assert [(b.total, b.published, b.missing) for b in seen.barriers] == [(None, 2, (0, 1))]
    await leave(state, 0)
    await leave(state, 1)
    await read(state, 1, portion(1, 1, ended=True))
    seen = await state.holding(E, 10)
    assert seen is not None
    assert [(b.total, b.done) for b in seen.barriers] == [(4, 2)]


OUTER: Place = (("o", 0),)


async def failing_item(state: State) -> None:
    """A lazy fan-out in an item of which another branch then fails."""
    await ask(state, "outer", Open("o", 1, 2, b"outer release", published=1))
    await opened(state, place=OUTER)


@pytest.mark.parametrize(
    "operations",
    [
        (),
        (Record(b"1"), Extend(5, refill=b"more")),
        (Record(b"1"), Extend(failure=b"{}")),
        (TryAgain(1, Timer("t", 9.0, b"")),),
    ],
)
async def test_in_an_item_that_failed_it_ends_with_what_it_has(
    state: State, operations: tuple[Operation, ...]
) -> None:
    await failing_item(state)
    assert (await read(state, 0, portion(0, 2), OUTER)).refill == (0, 2)
    await ask(state, "other", Settle(-1, error=b'"no"'), place=OUTER)
    assert (await leave(state, 0, place=OUTER)).refill == (2, 2), "its items end one by one"
    assert (await leave(state, 1, place=OUTER)).refill is None
    answer = await ask(state, "r1", *operations, place=OUTER, reads="b")
    assert (answer.dropped, answer.release, answer.refill) == (True, b"release", None)
    again = await ask(state, "r1", *operations, place=OUTER, reads="b")
    assert (again.dropped, again.release) == (True, b"release")
    # What the barrier kept the place of, ends the item.
    ended = await ask(state, "gather", place=OUTER)
    assert (ended.dropped, ended.release) == (True, b"outer release")
