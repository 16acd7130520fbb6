"""What State promises of an execution's branches and steps, on every backend."""

from __future__ import annotations

import asyncio

from rune.core.operations import (
    Answer,
    Commit,
    End,
    Lease,
    Place,
    Record,
    Settle,
    Timer,
    TryAgain,
)
from rune.core.ports import State
from tests.backends.asking import ROOT, E, ask, lease, leave, opening
from tests.backends.conftest import Clock

# --- the execution's own scope -----------------------------------------------------------------------------


async def test_one_branch_that_ends_ends_the_execution(state: State, clock: Clock) -> None:
    answer = await ask(state, "s", Settle(-1, b"{}"))
    assert answer.ending is not None
    assert (answer.ending.status, answer.ending.at, list(answer.ending.contexts)) == (
        "completed",
        clock.now,
        [b"{}"],
    )


async def test_whoever_ended_it_hears_so_again_and_others_that_it_is_gone(state: State) -> None:
    first = await ask(state, "s", Settle(-1, b"{}"))
    again = await ask(state, "s", Settle(-1, b"{}"))
    assert again.gone
    assert again.ending == first.ending
    assert await ask(state, "other", Settle(-1)) == Answer(gone=True)


async def test_several_branches_give_one_ending_in_path_order(state: State) -> None:
    await ask(state, "fork", Settle(+2))
    assert (await ask(state, "c", Settle(-1, b"3", ".10"))).ending is None
    assert (await ask(state, "b", Settle(-1, b"2", ".2"))).ending is None
    ending = (await ask(state, "a", Settle(-1, b"1", ".0"))).ending
    assert ending is not None
    assert list(ending.contexts) == [b"1", b"2", b"3"]


async def test_settling_twice_counts_once(state: State) -> None:
    for _ in range(3):
        await ask(state, "fork", Settle(+1))
    for _ in range(3):
        assert (await ask(state, "a", Settle(-1, b"1", ".0"))).ending is None
    ending = (await ask(state, "b", Settle(-1, b"2", ".1"))).ending
    assert ending is not None
    assert list(ending.contexts) == [b"1", b"2"]


async def test_an_execution_can_be_ended_outright(state: State) -> None:
    answer = await ask(state, "s", End("halted", b'{"message":"no"}', "stopped", b"{}"))
    assert answer.ending is not None
    assert (answer.ending.status, answer.ending.error, answer.ending.reason) == (
        "halted",
        b'{"message":"no"}',
        "stopped",
    )
    assert (await ask(state, "s", End("failed"))).ending == answer.ending
    assert await ask(state, "t", Record(b"1")) == Answer(gone=True)


async def test_executions_do_not_see_each_other(state: State) -> None:
    await state.apply("exec_2", [Commit("s", ROOT, [Record(b"theirs")])])
    assert (await ask(state, "s", Record(b"ours"))).record is None


async def test_several_commits_are_carried_out_in_order(state: State) -> None:
    answers = await state.apply(
        E, [Commit("fork", ROOT, [Settle(+1)]), *(Commit(s, ROOT, [Settle(-1)]) for s in "ab")]
    )
    assert [answer.ending is not None for answer in answers] == [False, False, True]


async def test_calls_made_at_once_are_carried_out_one_after_the_other(state: State) -> None:
    await ask(state, "split", opening(50))
    answers = await asyncio.gather(*(leave(state, f"s{i}", i) for i in range(50)))
    assert sorted(a.progress.processed for a in answers if a.progress) == list(range(1, 51))
    assert sum(answer.release is not None for answer in answers) == 1


async def test_the_first_to_end_it_says_when_it_started(state: State) -> None:
    """A message that starts an execution may come twice, and nobody can tell which of them was first."""
    endings = []
    for started_at in (17.25, 18.5):
        (answer,) = await state.apply(E, [Commit("s", ROOT, [Settle(-1, b"{}")], started_at)])
        endings.append(answer.ending)
    assert endings[0] is not None
    assert endings[0].started_at == 17.25
    assert endings[1] == endings[0]


# --- records and leases ------------------------------------------------------------------------------------


async def test_the_first_record_stands(state: State) -> None:
    assert await ask(state, "s", Record(b"1")) == Answer()
    assert await ask(state, "s", Record(b"1")) == Answer()
    assert await ask(state, "s", Record(b"2"), Settle(-1)) == Answer(record=b"1")
    assert (await ask(state, "s", Record(b"1"), Settle(-1))).ending is not None


async def test_a_lease_keeps_others_out_until_it_ends(state: State, clock: Clock) -> None:
    assert await lease(state, "s", clock.now + 10) == Lease(fence=1)
    assert await lease(state, "s", clock.now + 20) == Lease(busy_until=clock.now + 10)
    clock.advance(10)
    assert await lease(state, "s", clock.now + 10) == Lease(fence=2)


async def test_a_renewed_lease_lasts_longer(state: State, clock: Clock) -> None:
    await lease(state, "s", clock.now + 10)
    assert await state.renew(E, "s", 1, clock.now + 30)
    clock.advance(20)
    assert await lease(state, "s", clock.now + 10) == Lease(busy_until=clock.now + 10)


async def test_a_lost_lease_cannot_be_renewed_and_its_record_does_not_count(
    state: State, clock: Clock
) -> None:
    await lease(state, "s", clock.now + 10)
    clock.advance(11)
    await lease(state, "s", clock.now + 10)
    assert not await state.renew(E, "s", 1, clock.now + 10)
    assert await ask(state, "s", Record(b"late", fence=1), Settle(-1)) == Answer(gone=True)
    assert (await ask(state, "s", Record(b"good", fence=2))).record is None
    assert await lease(state, "s", clock.now + 10) == Lease(record=b"good")


async def test_nothing_to_renew(state: State, clock: Clock) -> None:
    assert not await state.renew(E, "never", 1, clock.now + 10)
    await lease(state, "s", clock.now + 10)
    await ask(state, "s", Record(b"1", fence=1))
    assert not await state.renew(E, "s", 1, clock.now + 10)


async def test_a_lease_given_back_does_not_count_as_a_start(state: State, clock: Clock) -> None:
    await lease(state, "s", clock.now + 10)
    await state.give_back(E, [("s", 1), ("unknown", 1)])
    await state.give_back(E, [("s", 1)])
    assert await lease(state, "s", clock.now + 10) == Lease(fence=1)


async def test_a_spent_attempt_is_gone_and_the_next_starts_afresh(state: State, clock: Clock) -> None:
    await lease(state, "s", clock.now + 10)
    again = Timer("again", clock.now + 1, b"task")
    for _ in range(2):
        assert await ask(state, "s", TryAgain(1, again)) == Answer()
    assert await lease(state, "s", clock.now + 10) == Lease(gone=True)
    assert await lease(state, "s", clock.now + 10, attempt=2) == Lease(fence=1)
    clock.advance(1)
    assert [timer.id for timer in await state.claim(clock.now, 10, clock.now + 30)] == ["again"]


async def test_no_lease_in_an_execution_that_has_ended(state: State, clock: Clock) -> None:
    await ask(state, "s", End("failed"))
    assert await lease(state, "t", clock.now + 10) == Lease(gone=True)


async def test_several_leases_at_once(state: State, clock: Clock) -> None:
    await ask(state, "split", opening(2))
    steps: list[tuple[str, Place]] = [("s0", (("b", 0),)), ("s1", (("b", 1),)), ("s2", (("nowhere", 0),))]
    leases = await state.lease(E, steps, 1, clock.now + 10)
    assert leases == [Lease(fence=1), Lease(fence=1), Lease(gone=True)]
