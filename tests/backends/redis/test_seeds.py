"""Seeds in Redis: found again when the execution is buried, also where their fan-out never opened."""

from __future__ import annotations

import pytest

from rune.backends.redis import RedisState
from rune.core.operations import Commit, Open, Place, Seed, Settle
from tests.backends.conftest import Clock
from tests.servers.redis import RedisServer

E = "exec_1"


def _seeds(total: int) -> list[Seed]:
    outer: list[Place] = [(("b", i),) for i in range(total)]
    inner: list[Place] = [(*place, (f"c{i}", 0)) for i, place in enumerate(outer)]
    return [Seed(f"s{i}", place, b"1") for i, place in enumerate([(), *outer, *inner])]


@pytest.mark.parametrize("opens", [False, True])
async def test_burying_leaves_only_the_tombstone(
    state: RedisState, server: RedisServer, clock: Clock, opens: bool
) -> None:
    # More of them than one call forgets.
    await state.seed(E, _seeds(1200))
    if opens:
        await state.apply(E, [Commit("b", (), [Open("b", 1200, 1, b"release", published=1200)])])
        await state.lease(E, [("s1", (("b", 0),))], 1, clock.now + 10)
        await state.apply(E, [Commit(f"e{i}", (("b", i),), [Settle(-1, b"1")]) for i in range(600)])
    await state.bury(E, [], clock.now + 100)
    assert server.keys("exec:*") == {f"exec:{{{E}}}:x"}


async def test_an_item_that_was_met_takes_its_seeds_along(
    state: RedisState, server: RedisServer, clock: Clock
) -> None:
    await state.seed(E, _seeds(1))
    await state.apply(E, [Commit("b", (), [Open("b", 2, 1, b"release", published=2)])])
    await state.lease(E, [("s1", (("b", 0),))], 1, clock.now + 10)
    await state.apply(E, [Commit("e", (("b", 0),), [Settle(-1, b"1")])])
    assert f"exec:{{{E}}}:s:b.0" not in server.keys("exec:*")
