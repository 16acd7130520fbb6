"""What is kept, where, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rune.backends.redis import RedisState, open_redis
from rune.backends.redis.routes import slot_of
from rune.backends.redis.scripts import Script
from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    End,
    Open,
    Operation,
    Place,
    Record,
    Rule,
    Settle,
    Timer,
)
from rune.core.outcome import Policy
from tests.backends.conftest import Clock
from tests.servers.redis import RedisServer

E = "exec_1"
ROOT: Place = ()


async def ask(state: RedisState, step: str, *operations: Operation, place: Place = ROOT) -> Answer:
    (answer,) = await state.apply(E, [Commit(step, place, operations)])
    return answer


@pytest.fixture
async def two(server: RedisServer, clock: Clock) -> AsyncIterator[list[RedisState]]:
    """Two processes."""
    async with open_redis(server.url, clock=clock) as one, open_redis(server.url, clock=clock) as other:
        yield [one, other]


async def _everything(state: RedisState, clock: Clock) -> None:
    await state.put(E, {"kept": b"1", "lost": b"2"})
    await ask(state, "fork", Settle(+3), Arm(Timer("u", clock.now + 9, b"task")))
    opening = Open(
        "b", 9, 2, b"release", window=2, published=2, timer=Timer("t", clock.now + 1, b"t"), refill=b"r"
    )
    await ask(state, "split", Record(b"1"), opening)
    await ask(state, "x", ArriveAt(Rule("m", "n", 2), 0, b"{}"))
    for i in range(3):
        await state.lease(E, [(f"s{i}", (("b", i),))], 1, clock.now + 100)
        await ask(state, f"i{i}", Open(f"c{i}", 3, 1, b"release"), place=(("b", i),))
        await ask(state, f"s{i}", Settle(-1, b"1"), place=(("b", i),))
    await ask(state, "v0", Settle(-1, b"1"), place=(("b", 0),))
    await state.pause(E)
    await state.park(E, "s", b"task")


async def test_all_keys_of_an_execution_share_its_slot_and_have_no_ttl(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await _everything(state, clock)
    keys = server.keys("exec:*")
    assert len(keys) > 15
    assert {slot_of(key) for key in keys} == {slot_of(E)}
    assert {server.call("TTL", key) for key in keys | server.keys("{rune}*")} == {-1}


async def test_after_the_end_a_tombstone_and_kept_values_stay_for_a_time(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await _everything(state, clock)
    await state.bury(E, ["kept"], clock.now + 100)
    left = {key: server.call("TTL", key) for key in server.keys("exec:*")}
    assert left == {
        f"exec:{{{E}}}:x": pytest.approx(100, abs=5),
        f"exec:{{{E}}}:v": pytest.approx(100, abs=5),
    }
    assert server.keys("{rune}*") == {"{rune}:epoch", "{rune}:ended", "{rune}:endings"}
    assert await state.news() == (frozenset({E}), frozenset())


async def test_an_item_that_ends_leaves_nothing_but_its_slot(state: RedisState, server: RedisServer) -> None:
    await ask(state, "split", Open("b", 2, 2, b"release"))
    before = server.keys()
    place: Place = (("b", 0),)
    await ask(state, "x", Record(b"1"), Settle(+1), place=place)
    await ask(state, "inner", Open("c", 1, 1, b"inner"), place=place)
    await ask(state, "y", ArriveAt(Rule("m", "n", 2), 0, b"{}"), place=place)
    await ask(state, "c0", Settle(-1, b"1"), place=(*place, ("c", 0)))
    for step in "zw":
        await ask(state, step, Settle(-1, b"1"), place=place)
    assert server.keys() - before == {f"exec:{{{E}}}:i:b"}


async def test_many_items_left_behind_are_swept(state: RedisState, server: RedisServer, clock: Clock) -> None:
    await ask(state, "split", Open("b", 2, 1, b"release"))
    before = server.keys()
    outer: Place = (("b", 0),)
    await ask(state, "inner", Open("c", 1200, 1, b"inner", Policy(tolerated=0)), place=outer)
    steps: list[tuple[str, Place]] = [(f"c{i}", (*outer, ("c", i))) for i in range(1200)]
    await state.lease(E, steps, 1, clock.now + 10)
    await ask(state, "d", Open("d", 2, 1, b"deep"), place=steps[7][1])
    await ask(state, "d0", Record(b"1"), place=(*steps[7][1], ("d", 0)))
    await ask(state, "c0", Settle(-1, error=b"{}"), place=steps[0][1])
    await ask(state, "g", Settle(-1, b"[]"), place=outer)
    left = server.keys() - before
    assert left == {f"exec:{{{E}}}:{key}" for key in ("i:b", "leases", "leased")}


async def test_nothing_takes_longer_the_more_items_there_are(state: RedisState, server: RedisServer) -> None:
    total = 50_000
    await ask(state, "split", Open("b", total, 1, b"release", published=total))
    for at in range(0, total, 250):
        commits = [Commit(f"s{i}", (("b", i),), [Settle(-1, b'{"n":1}')]) for i in range(at, at + 249)]
        await state.apply(E, commits)
    rest = [(i, (("b", i),)) for i in range(249, total, 250)]
    server.call("CONFIG", "SET", "slowlog-log-slower-than", "50000")
    server.call("SLOWLOG", "RESET")
    answers = [await ask(state, f"s{i}", Settle(-1, b"1"), place=place) for i, place in rest]
    assert answers[-1].release == b"release"
    await ask(state, "g", Settle(-1, b"{}"))
    await state.bury(E, [], 0.0)
    # Reading 50,000 slots in one go would take longer than this.
    assert server.call("SLOWLOG", "LEN") == 0


# --- races ---------------------------------------------------------------------------------------------


async def test_the_same_commits_from_two_processes_at_once_count_once(two: list[RedisState]) -> None:
    await ask(two[0], "split", Open("b", 100, 1, b"release", window=10, published=10, refill=b"more"))
    answers = await asyncio.gather(
        *(
            ask(state, f"s{i}", Settle(-1, b"%d" % i, folds=(i,)), place=(("b", i),))
            for i in range(100)
            for state in two
        )
    )
    assert sum(answer.progress is not None for answer in answers) == 100
    closers = {i // 2 for i, answer in enumerate(answers) if answer.release is not None}
    assert len(closers) == 1
    refills = {answer.refill for answer in answers if answer.refill is not None}
    assert sorted(item for first, stop in refills for item in range(first, stop)) == list(range(10, 100))
    view = await two[0].barrier(E, "b")
    assert view is not None
    assert view.folds == ((4950, 100, 0, 99),)


async def test_of_many_who_want_a_lease_one_gets_it(two: list[RedisState], clock: Clock) -> None:
    leases = await asyncio.gather(
        *(state.lease(E, [("s", ROOT)], 1, clock.now + 10) for _ in range(20) for state in two)
    )
    assert sorted(lease.fence for (lease,) in leases) == [0] * 39 + [1]


async def test_due_timers_are_shared_among_schedulers(two: list[RedisState], clock: Clock) -> None:
    total = 2500
    commits = [Commit("s", ROOT, [Arm(Timer(f"t{i}", clock.now, b"task"))]) for i in range(total)]
    await two[0].apply(E, commits)
    claims = await asyncio.gather(*(state.claim(clock.now, 2000, clock.now + 30) for state in two))
    ids = [timer.id for claimed in claims for timer in claimed]
    assert len(ids) == len(set(ids)) == total
    await asyncio.gather(*(state.discharge(claimed) for state, claimed in zip(two, claims, strict=True)))
    assert await two[0].next_due() is None


async def test_an_earlier_timer_of_another_process_wakes_the_scheduler(
    two: list[RedisState], clock: Clock
) -> None:
    await ask(two[0], "s", Arm(Timer("late", clock.now + 100, b"task")))
    assert await two[1].next_due() == clock.now + 100
    sleeper = asyncio.create_task(two[1].armed(60))
    await ask(two[0], "s", Arm(Timer("early", clock.now + 50, b"task")))
    await asyncio.wait_for(sleeper, 5)


def meanwhile(state: RedisState, script: str, other: Callable[[], Awaitable[object]]) -> None:
    """Have something happen just before the state's next call of a script reaches Redis."""
    ask = state._client.script

    async def late(asked: Script, *rest: Any) -> Any:
        if asked.name == script:
            state._client.script = ask  # type: ignore[method-assign]
            await other()
        return await ask(asked, *rest)

    state._client.script = late  # type: ignore[method-assign, assignment]


async def test_a_timer_that_is_disarmed_before_it_is_indexed_leaves_nothing(
    two: list[RedisState], server: RedisServer, clock: Clock
) -> None:
    one, other = two
    meanwhile(one, "index", lambda: ask(other, "s0", Settle(-1, b"1"), place=(("b", 0),)))
    timer = Timer("t", clock.now + 3600, b"task", sleeping=False)
    await ask(one, "split", Open("b", 1, 1, b"release", timer=timer))
    assert server.left(E)["{rune}:due"] == []
    assert await one.next_due() is None


async def test_a_claim_that_is_indexed_after_its_timer_was_armed_anew_leaves_nothing(
    two: list[RedisState], server: RedisServer, clock: Clock
) -> None:
    """Two duplicates of a step that calls another execution, one of them around the end of that call."""
    one, other = two
    call = Arm(Timer("w", None, b"task"))
    await ask(one, "w", call)
    assert await one.wake(E, "w", b"answer", clock.now)
    claimed = await other.claim(clock.now, 10, clock.now + 30)

    async def publish() -> None:
        await other.discharge(claimed)
        await ask(other, "w", call)

    meanwhile(one, "index", publish)
    await ask(one, "w", call)
    assert await one.next_due() is None
    assert await one.wake(E, "w", b"answer", clock.now + 1)
    assert await one.next_due() == clock.now + 1


@pytest.mark.parametrize("what", ["a wait", "a claim"])
async def test_an_execution_that_ends_before_its_timer_is_indexed_leaves_nothing(
    two: list[RedisState], server: RedisServer, clock: Clock, what: str
) -> None:
    one, other = two

    async def end() -> None:
        await ask(other, "x", End("halted"))
        await other.bury(E, [], clock.now + 100)

    if what == "a wait":
        meanwhile(one, "index", end)
        await ask(one, "w", Arm(Timer("w", clock.now + 3600, b"task")))
    else:
        await ask(one, "w", Arm(Timer("w", clock.now + 3600, b"task")))
        # The index is wrong, so that whoever claims the timer has to mend it.
        server.call("ZADD", "{rune}:due", "1", f"{E}/w")
        meanwhile(one, "index", end)
        assert await one.claim(clock.now, 10, clock.now + 30) == []
    left = server.left(E)
    assert {name: found for name, found in left.items() if found} == {}
    assert server.keys(f"exec:{{{E}}}*") == {f"exec:{{{E}}}:x"}


async def test_a_pause_that_is_noted_late_pauses_nothing(
    two: list[RedisState], server: RedisServer, clock: Clock
) -> None:
    """It ends, or goes on, between the flag and the list of all that are paused."""
    one, other = two
    await one.put(E, {"h": b"1"})
    noted = one._client.call
    how: list[Callable[[], Awaitable[object]]] = [
        lambda: other.unpause(E),
        lambda: other.bury(E, [], clock.now + 100),
    ]
    for meantime in how:

        async def late(key: str, *command: Any, meantime: Any = meantime) -> Any:
            if command[0] == "SADD":
                one._client.call = noted  # type: ignore[method-assign]
                await meantime()
            return await noted(key, *command)

        one._client.call = late  # type: ignore[method-assign, assignment]
        await one.pause(E)
        assert (await one.news())[1] == frozenset()
    assert server.call("EXISTS", "{rune}:paused") == 0


async def test_what_is_parked_while_it_goes_on_is_kept(state: RedisState, server: RedisServer) -> None:
    await state.put(E, {"h": b"1"})
    await state.pause(E)
    await state.park(E, "s", b"first")
    assert await state.unpause(E) == [b"first"]
    await state.pause(E)
    await state.park(E, "t", b"second")
    await state.unparked(E)
    assert await state.unpause(E) == [b"second"]
    await state.unparked(E)
    assert await state.unpause(E) == []


async def test_news_of_other_processes_arrives_bit_by_bit(two: list[RedisState], clock: Clock) -> None:
    for number in range(3):
        await two[0].bury(f"exec_{number}", [], clock.now + 100)
        ended, _ = await two[1].news()
        assert ended == {f"exec_{i}" for i in range(number + 1)}


async def test_only_the_holder_gives_a_lease_back(two: list[RedisState], clock: Clock) -> None:
    await two[0].lease(E, [("s", ROOT)], 1, clock.now + 10)
    await two[1].give_back(E, [("s", 1)])
    assert (await two[1].lease(E, [("s", ROOT)], 1, clock.now + 10))[0].busy_until == clock.now + 10
