"""Outages, crashes in the middle, and an emptied Redis."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rune.backends.redis import RedisState, open_redis
from rune.backends.redis import connection as connection_module
from rune.backends.redis.scripts import load
from rune.core.errors import InfrastructureError, StateLost
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
    TryAgain,
)
from tests.backends.conftest import Clock
from tests.servers.redis import RedisServer, redis_server

E = "exec_1"
ROOT: Place = ()


async def ask(state: RedisState, step: str, *operations: Operation, place: Place = ROOT) -> Answer:
    (answer,) = await state.apply(E, [Commit(step, place, operations)])
    return answer


# --- outages -------------------------------------------------------------------------------------------


async def test_after_a_kill_calls_go_on_and_every_item_counts_once() -> None:
    total = 600
    with redis_server(durable=True) as server:
        async with open_redis(server.url) as state:
            await ask(state, "split", Open("b", total, 1, b"release", published=total))

            async def worker(number: int) -> list[bytes]:
                released = []
                for i in range(number, total, 20):
                    answer = await ask(state, f"s{i}", Settle(-1, b"%d" % i), place=(("b", i),))
                    if answer.release is not None:
                        released.append(answer.release)
                return released

            async def killer() -> None:
                for _ in range(3):
                    await asyncio.sleep(0.05)
                    server.kill()
                    await asyncio.to_thread(server.start)

            *released, _ = await asyncio.gather(*(worker(i) for i in range(20)), killer())
            assert sum(map(len, released)) == 1
            assert await state.slots(E, "b", 0, total) == [(i, b"%d" % i) for i in range(total)]
            view = await state.barrier(E, "b")
            assert view is not None
            assert view.succeeded == total


async def test_calls_wait_while_redis_is_away_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    with redis_server(durable=True) as server:
        async with open_redis(server.url) as state:
            await ask(state, "s", Record(b"1"))
            await state.ready()
            server.kill()
            waiting = asyncio.create_task(ask(state, "s", Record(b"2")))
            while state.up.is_set():
                await asyncio.sleep(0.01)
            assert "is out of reach" in caplog.text
            assert not waiting.done()
            server.start()
            assert await asyncio.wait_for(waiting, 10) == Answer(record=b"1")
            await asyncio.wait_for(state.ready(), 10)


async def test_patience_can_end() -> None:
    with redis_server() as server:
        async with open_redis(server.url, patience=0.3) as state:
            server.kill()
            with pytest.raises(InfrastructureError, match="out of reach"):
                await ask(state, "s", Record(b"1"))
            # Nobody calls any more, and yet it is noticed that Redis is back.
            server.start()
            await asyncio.wait_for(state.ready(), 10)


async def test_a_server_that_hangs_counts_as_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_STALL", 0.3)
    with redis_server() as server:
        async with open_redis(server.url, patience=1.0) as state:
            server.freeze()
            try:
                with pytest.raises(InfrastructureError, match="no answer"):
                    await ask(state, "s", Record(b"1"))
            finally:
                server.thaw()


async def test_whoever_starts_before_redis_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    with redis_server() as server:
        server.kill()
        opened = open_redis(server.url)
        opening = asyncio.create_task(opened.__aenter__())
        while "is out of reach" not in caplog.text:
            await asyncio.sleep(0.01)
        server.start()
        state = await asyncio.wait_for(opening, 10)
        assert await ask(state, "s", Record(b"1")) == Answer()
        assert "is back" in caplog.text
        await opened.__aexit__(None, None, None)


async def test_a_wrong_password_is_not_waited_out() -> None:
    with redis_server(options=("--requirepass", "right")) as server:
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            with pytest.raises(InfrastructureError, match="refuses us"):
                async with open_redis(url):
                    pass
        async with open_redis(server.url.replace("//", "//:right@")) as state:
            assert await ask(state, "s", Record(b"1")) == Answer()


async def test_scripts_that_redis_forgot_are_loaded_again(state: RedisState, server: RedisServer) -> None:
    server.call("SCRIPT", "FLUSH")
    assert await ask(state, "s", Record(b"1")) == Answer()


async def test_a_full_server_is_waited_out(state: RedisState, server: RedisServer) -> None:
    await ask(state, "s", Record(b"1"))
    server.call("CONFIG", "SET", "maxmemory", "1")
    try:
        waiting = asyncio.create_task(ask(state, "t", Record(b"2")))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    finally:
        server.call("CONFIG", "SET", "maxmemory", "0")
    assert await asyncio.wait_for(waiting, 10) == Answer()


async def test_the_listener_for_timers_survives_a_restart(clock: Clock) -> None:
    with redis_server(durable=True) as server:
        async with open_redis(server.url, clock=clock) as state:
            assert await state.next_due() is None
            server.kill()
            server.start()
            assert await state.next_due() is None
            sleeper = asyncio.create_task(state.armed(None))
            await ask(state, "s", Arm(Timer("t", clock.now + 5, b"task")))
            await asyncio.wait_for(sleeper, 10)


# --- crashes between two of a call's steps -------------------------------------------------------------


def _timer(clock: Clock) -> Timer:
    return Timer("t", clock.now + 5, b"task", sleeping=False)


@pytest.mark.parametrize("how", ["arm", "open", "again", "arrive"])
async def test_a_repeated_call_indexes_its_timer_again(
    state: RedisState, server: RedisServer, clock: Clock, how: str
) -> None:
    timer = _timer(clock)
    operation: Operation = {
        "arm": Arm(timer),
        "open": Open("b", 2, 1, b"release", timer=timer),
        "again": TryAgain(1, timer),
        "arrive": ArriveAt(Rule("m", "n", 2, timer=timer), 0, b"{}"),
    }[how]
    await ask(state, "fork", Settle(+1))
    await ask(state, "s", operation)
    server.call("DEL", "{rune}:due")
    assert await state.next_due() is None
    await ask(state, "s", operation)
    assert await state.next_due() == clock.now + 5


async def test_a_repeated_call_does_not_call_a_claimed_timer_back(state: RedisState, clock: Clock) -> None:
    await ask(state, "s", Arm(_timer(clock)))
    clock.advance(10)
    claimed = await state.claim(clock.now, 10, clock.now + 30)
    await ask(state, "s", Arm(_timer(clock)))
    assert await state.claim(clock.now, 10, clock.now + 30) == []
    await state.discharge(claimed)
    assert await state.next_due() is None


async def test_an_index_that_is_wrong_is_mended(state: RedisState, server: RedisServer, clock: Clock) -> None:
    await ask(state, "s", Arm(_timer(clock)))
    server.call("ZADD", "{rune}:due", "1", f"{E}/t", "1", f"{E}/never-was", "1", "buried/t")
    assert await state.claim(clock.now, 10, clock.now + 30) == []
    assert await state.next_due() == clock.now + 5
    assert server.call("ZCARD", "{rune}:claimed") == 0
    clock.advance(5)
    claimed = await state.claim(clock.now, 10, clock.now + 30)
    assert [timer.id for timer in claimed] == ["t"]
    server.call("ZADD", "{rune}:due", "1", f"{E}/t")
    assert await state.claim(clock.now, 10, clock.now + 60) == []
    assert await state.next_due() == clock.now + 30


async def test_a_claim_that_nobody_took_up_is_found_again(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await ask(state, "s", Arm(_timer(clock)))
    clock.advance(5)
    # The scheduler died between the index and the execution.
    server.call("ZREM", "{rune}:due", f"{E}/t")
    server.call("ZADD", "{rune}:claimed", str(clock.now + 30), f"{E}/t")
    assert await state.claim(clock.now, 10, clock.now + 30) == []
    clock.advance(30)
    assert [timer.id for timer in await state.claim(clock.now, 10, clock.now + 30)] == ["t"]


async def test_a_lease_whose_answer_was_lost_is_granted_again(state: RedisState, clock: Clock) -> None:
    asked = state._client.script
    lost = []

    async def twice(script: object, *arguments: object) -> object:
        # What a client does that heard nothing.
        lost.append(await asked(script, *arguments))  # type: ignore[arg-type]
        return await asked(script, *arguments)  # type: ignore[arg-type]

    state._client.script = twice  # type: ignore[method-assign, assignment]
    (granted,) = await state.lease(E, [("s", ROOT)], 1, clock.now + 10)
    state._client.script = asked  # type: ignore[method-assign]
    assert granted.fence == 1
    (other,) = await state.lease(E, [("s", ROOT)], 1, clock.now + 10)
    assert other.busy_until == clock.now + 10


async def test_a_burial_goes_on_where_it_stopped(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await state.put(E, {"kept": b"1", "lost": b"2"})
    await ask(state, "fork", Settle(+1))
    await ask(state, "split", Open("b", 3, 1, b"release", timer=_timer(clock)))
    ended = (await ask(state, "x", End("failed", b"{}", "why", b"{}"))).ending
    # Its first call, after which the process died.
    await state._client.script(load("bury"), (f"exec:{{{E}}}:x",), 1000, 1, b"\x90", b"\x90", "")
    again = await ask(state, "x", End("failed", b"{}", "why", b"{}"))
    assert again.ending == ended
    assert await state.get(E, ["lost"]) == {"lost": b"2"}
    await state.bury(E, ["kept"], clock.now + 100)
    assert server.keys(f"exec:{{{E}}}*") == {f"exec:{{{E}}}:x", f"exec:{{{E}}}:v"}
    assert await state.next_due() is None
    assert await state.live() == []


async def test_live_forgets_who_was_buried_but_not_delisted(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await state.put(E, {"h": b"1"})
    await state.bury(E, [], clock.now + 100)
    server.call("ZADD", "{rune}:live", "1", E)
    assert await state.live() == []
    assert server.call("ZCARD", "{rune}:live") == 0


async def test_live_forgets_who_was_listed_and_never_came(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    server.call("ZADD", "{rune}:live", str(clock.now), "cut-off")
    assert await state.live() == []
    assert server.call("ZCARD", "{rune}:live") == 1
    clock.advance(4000)
    assert await state.live() == []
    assert server.call("ZCARD", "{rune}:live") == 0


async def test_whoever_comes_after_a_burial_that_was_not_delisted_delists_it(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await ask(state, "s", Record(b"1"))
    await state.pause(E)
    await state.bury(E, [], clock.now + 100)
    server.call("ZADD", "{rune}:live", "1", E)
    server.call("SADD", "{rune}:paused", E)
    assert await ask(state, "s", Record(b"1")) == Answer(gone=True)
    assert server.keys("{rune}:[lp]*") == set()


async def test_late_messages_list_nothing(server: RedisServer, state: RedisState, clock: Clock) -> None:
    await ask(state, "s", Record(b"1"))
    await state.bury(E, [], clock.now + 100)
    async with open_redis(server.url, clock=clock) as other:
        assert await ask(other, "s", Record(b"1")) == Answer(gone=True)
        await other.put(E, {"h": b"1"})
        assert (await other.lease(E, [("s", ROOT)], 1, clock.now + 1))[0].gone
    assert await state.get(E, ["h"]) == {}
    assert server.call("ZCARD", "{rune}:live") == 0


# --- an emptied Redis ----------------------------------------------------------------------------------


async def test_an_execution_met_again_in_an_emptied_redis_is_lost(
    state: RedisState, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await ask(state, "split", Open("b", 2, 1, b"release"))
    epoch = state.epoch
    server.flush()
    with pytest.raises(StateLost) as lost:
        await ask(state, "s0", Settle(-1, b"1"), place=(("b", 0),))
    assert "emptied" in str(lost.value)
    assert state.epoch != epoch
    assert [r.levelname for r in caplog.records if "was emptied" in r.message] == ["ERROR"]
    # What has to be done about it can be done.
    answer = await ask(state, "lost", End("failed", b"{}"))
    assert answer.ending is not None


async def test_a_lost_execution_is_noticed_at_the_first_meeting_too(
    state: RedisState, server: RedisServer
) -> None:
    server.flush()
    with pytest.raises(StateLost, match="emptied"):
        await ask(state, "s", Settle(+1))
    assert await ask(state, "s", Settle(+1)) == Answer()


async def test_whoever_asks_for_news_hears_that_redis_was_emptied(
    state: RedisState, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    epoch = state.epoch
    await state.news()
    assert state.epoch == epoch
    server.flush()
    await state.news()
    assert state.epoch != epoch
    assert caplog.records[-1].levelno == logging.ERROR


async def test_a_redis_that_comes_back_without_its_data_is_noticed() -> None:
    with redis_server() as server:
        async with open_redis(server.url) as state:
            await ask(state, "fork", Settle(+1))
            server.kill()
            server.start()
            with pytest.raises(StateLost, match="emptied"):
                await ask(state, "a", Settle(-1))


async def test_it_does_not_matter_who_noticed(state: RedisState, server: RedisServer) -> None:
    await ask(state, "fork", Settle(+1))
    server.flush()
    await state.news()
    with pytest.raises(StateLost, match="emptied"):
        await ask(state, "a", Settle(-1))


async def test_all_processes_agree_on_the_epoch(state: RedisState, server: RedisServer) -> None:
    async with open_redis(server.url) as other:
        assert other.epoch == state.epoch
        server.flush()
        assert [await other.check(), await state.check()] == [False, False]
        assert other.epoch == state.epoch


async def test_an_execution_whose_tombstone_has_gone_is_new(state: RedisState, server: RedisServer) -> None:
    await ask(state, "s", Record(b"1"))
    server.call("DEL", f"exec:{{{E}}}:x", f"exec:{{{E}}}:s:")
    assert await ask(state, "s0", Settle(-1, b"1"), place=(("b", 0),)) == Answer(gone=True)
