"""One server, sentinels, a cluster: what a URL may say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rune.backends.redis import open_redis
from rune.backends.redis.address import Server, parse_url
from rune.backends.redis.routes import slot_of
from rune.core.errors import InfrastructureError
from rune.core.operations import Answer, Arm, Commit, Open, Record, Settle, Timer
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, join_cluster, redis_server, sentinel
from tests.servers.tls import encrypted


def test_what_a_url_says() -> None:
    assert parse_url("redis://") == ("single", (Server("127.0.0.1", 6379),), None, None, 0, "", None, None)
    address = parse_url("redis://me:p%40ss@redis.example:7000/3")
    assert (address.servers, address.username, address.password, address.db) == (
        (Server("redis.example", 7000),),
        "me",
        "p@ss",
        3,
    )
    assert parse_url("redis://:secret@h").password == "secret"
    assert parse_url("unix:///run/redis.sock?db=2")[1:5] == ((Server("/run/redis.sock", 0),), None, None, 2)
    assert parse_url("rediss://h").tls is not None
    found = parse_url("redis+sentinel://a,b:7/primary/4")
    assert found[:2] == ("sentinel", (Server("a", 26379), Server("b", 7)))
    assert (found.service, found.db) == ("primary", 4)
    assert parse_url("redis+cluster://[::1]:7,b").servers == (Server("::1", 7), Server("b", 6379))
    assert "secret" not in str(parse_url("redis://:secret@h"))


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://h",
            "redis+magic://h",
            "redis+sentinel://h",
            "redis://h:99999",
            "redis://[::1",
            "redis://a..b",
        ),
        *("redis://h/three", "redis://h/-1", "redis://h?db=three", "redis://h?colour=red"),
        *("redis://:hush/hush@h", "redis://:hush#hush@h", "rediss://h?ca=/no/such/file"),
    ],
)
def test_what_is_no_url_of_redis_is_told_and_not_shown(url: str) -> None:
    with pytest.raises(InfrastructureError) as told:
        parse_url(url)
    assert "hush" not in str(told.value)


@pytest.fixture(scope="module")
def pair() -> Iterator[list[RedisServer]]:
    """A cluster of two servers."""
    with redis_server(cluster=(0, 8191)) as one, redis_server(cluster=(8192, 16383)) as other:
        join_cluster(one, other)
        yield [one, other]


def test_slots_are_those_of_redis(pair: list[RedisServer]) -> None:
    for key in ("plain", "exec:{exec_1}:x", "{rune}:due", "{}empty", "{open", "a{b}{c}", "é"):
        assert pair[0].call("CLUSTER", "KEYSLOT", key) == slot_of(key)


async def test_executions_are_spread_over_a_cluster(pair: list[RedisServer]) -> None:
    async with open_redis(f"redis+cluster://127.0.0.1:{pair[0].port}") as state:
        names = [f"exec_{i}" for i in range(20)]
        now = time.time()
        timer = Arm(Timer("t", now, b"task"))
        await asyncio.gather(*(state.apply(name, [Commit("s", (), [Record(b"1"), timer])]) for name in names))
        assert {timer.execution for timer in await state.claim(now, 100, now + 30)} == set(names)
        assert sorted(await state.live()) == sorted(names)
        assert all(server.keys("exec:*") for server in pair)
        for name in names:
            await state.bury(name, [], now + 100)
        assert await state.live() == []
        assert await state.next_due() is None


async def test_a_slot_that_moves_is_followed(pair: list[RedisServer]) -> None:
    execution = next(f"exec_m{i}" for i in range(100) if slot_of(f"exec_m{i}") < 8192)
    slot, ids = slot_of(execution), [server.call("CLUSTER", "MYID") for server in pair]
    async with open_redis(f"redis+cluster://127.0.0.1:{pair[1].port}") as state:
        await state.apply(execution, [Commit("split", (), [Open("b", 2, 1, b"release")])])
        pair[1].call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        pair[0].call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        keys = pair[0].call("CLUSTER", "GETKEYSINSLOT", slot, 100)
        pair[0].call("MIGRATE", "127.0.0.1", pair[1].port, "", 0, 5000, "KEYS", *keys)
        for i in range(2):
            commit = Commit(f"s{i}", (("b", i),), [Settle(-1, b"1")])
            (answer,) = await state.apply(execution, [commit])
            for server in pair:
                server.call("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        assert answer.release == b"release"


async def test_sentinels_say_where_redis_is(server: RedisServer) -> None:
    with sentinel(server, "primary") as watcher:
        async with open_redis(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{watcher.port}/primary") as state:
            assert await state.apply("exec_1", [Commit("s", (), [Record(b"1")])]) == [Answer()]
        with pytest.raises(InfrastructureError, match="no sentinel knows"):
            async with open_redis(f"redis+sentinel://127.0.0.1:{watcher.port}/other", patience=0.2):
                pass


async def test_sentinels_may_have_a_password_of_their_own(server: RedisServer) -> None:
    with sentinel(server, "primary", "requirepass hush") as watcher:
        where = f"redis+sentinel://127.0.0.1:{watcher.port}/primary"
        async with open_redis(f"{where}?sentinel_password=hush") as state:
            assert await state.apply("exec_1", [Commit("s", (), [Record(b"1")])]) == [Answer()]
        with pytest.raises(InfrastructureError, match="refuses us"):
            async with open_redis(where):
                pass


def until(come: Callable[[], bool]) -> None:
    """Wait until this is so."""
    limit = time.monotonic() + 15
    while not come():
        assert time.monotonic() < limit
        time.sleep(0.02)


def follows(replica: RedisServer) -> bool:
    return b"master_link_status:up" in replica.call("INFO", "replication")


async def test_the_server_that_sentinels_choose_next_is_followed() -> None:
    with redis_server() as first, redis_server(options=("--replicaof", f"127.0.0.1 {first.port}")) as second:
        until(lambda: follows(second))
        with sentinel(first, "primary") as watcher:
            until(lambda: bool(watcher.call("SENTINEL", "replicas", "primary")))
            async with open_redis(f"redis+sentinel://127.0.0.1:{watcher.port}/primary") as state:
                await state.apply("exec_1", [Commit("s", (), [Record(b"1")])])
                until(lambda: watcher.call("SENTINEL", "failover", "primary") == b"OK")
                until(lambda: b"role:master" in second.call("INFO", "replication"))
                first.kill()
                again = state.apply("exec_1", [Commit("s", (), [Record(b"2")])])
                assert await asyncio.wait_for(again, 15) == [Answer(record=b"1")]


async def test_a_replica_that_takes_over_in_a_cluster_is_followed() -> None:
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with (
        redis_server(cluster=(0, 8191)) as one,
        redis_server(cluster=(8192, 16383)) as other,
        redis_server(options=options) as spare,
    ):
        join_cluster(other, one, spare)
        master = one.call("CLUSTER", "MYID")
        until(lambda: spare.call("CLUSTER", "REPLICATE", master) == b"OK")
        until(lambda: follows(spare))
        execution = next(f"exec_f{i}" for i in range(100) if slot_of(f"exec_f{i}") < 8192)
        async with open_redis(f"redis+cluster://127.0.0.1:{other.port}") as state:
            await state.apply(execution, [Commit("s", (), [Record(b"1")])])
            until(lambda: bool(spare.call("DBSIZE")))
            one.kill()
            spare.call("CLUSTER", "FAILOVER", "TAKEOVER")
            again = state.apply(execution, [Commit("s", (), [Record(b"2")])])
            assert await asyncio.wait_for(again, 15) == [Answer(record=b"1")]


async def test_a_server_with_tls(server: RedisServer, tmp_path: Path) -> None:
    async with encrypted(server.port, tmp_path) as door:
        async with open_redis(f"rediss://127.0.0.1:{door.port}?ca={door.ca}") as state:
            assert await state.apply("exec_1", [Commit("s", (), [Record(b"1")])]) == [Answer()]
        with pytest.raises(InfrastructureError, match="CERTIFICATE_VERIFY_FAILED"):
            async with open_redis(f"rediss://127.0.0.1:{door.port}", patience=0.2):
                pass


async def test_a_database_of_its_own(server: RedisServer) -> None:
    async with open_redis(f"{server.url}/5") as state:
        await state.apply("exec_1", [Commit("s", (), [Record(b"1")])])
    assert server.keys() == set()
