"""A loop on one worker: its elements, and what its iterations leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rune.core.errors import InfrastructureError
from rune.nodes._results import loaded
from rune.nodes.playbook.looping import Collected, Supply, side_by_side
from tests.nodes.store import Store, encoded


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def test_results_that_come_side_by_side_stand_in_order() -> None:
    store: Any = Store()
    collected = Collected(store, {"all": "append", "last": "merge"})
    texts = [f"{number:03}" + "x" * 30_000 for number in range(60)]
    await asyncio.gather(
        *(
            collected.put(at, encoded(texts[at]), {"all": texts[at], "last": {"at": at}})
            for at in reversed(range(60))
        )
    )
    whole = msgspec.json.decode(encoded(await collected.whole()))
    assert len(whole["results"]["parts"]) > 5
    shared = {"all": texts, "last": {"at": 59}}
    assert await loaded(store, whole) == {"results": texts, "count": 60, "shared": shared}


async def test_elements_do_not_run_far_ahead_of_a_slow_one() -> None:
    store: Any = Store()
    collected = Collected(store, {})
    supply = Supply(numbers(5000), lambda index: collected.room(index, 10))
    slow, behind = asyncio.Event(), asyncio.Event()
    taken = 0

    async def take() -> None:
        nonlocal taken
        while (found := await supply.following()) is not None:
            at, item = found
            taken += 1
            if taken == 1000:
                behind.set()
            if at == 0:
                await slow.wait()
            await collected.put(at, encoded(item), {})
            await asyncio.sleep(0)

    working = asyncio.create_task(side_by_side(10, take))
    await behind.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert taken == 1000
    slow.set()
    await working
    whole = await collected.whole()
    assert await loaded(store, whole["results"]) == list(range(5000))


@pytest.mark.parametrize("last", [ValueError("b"), InfrastructureError("out of reach")])
async def test_what_one_raises_is_raised_as_itself_and_an_outage_first(last: Exception) -> None:
    waiting: list[Exception] = [ValueError("a"), last]
    ready = asyncio.Barrier(2)

    async def work() -> None:
        error = waiting.pop()
        await ready.wait()
        raise error

    with pytest.raises(InfrastructureError if isinstance(last, InfrastructureError) else ValueError):
        await side_by_side(2, work)


async def test_a_cancellation_of_somebody_else_is_not_lost() -> None:
    async def work() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(RuntimeError, match="cancelled"):
        await side_by_side(2, work)
