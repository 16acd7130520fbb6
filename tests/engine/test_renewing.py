"""A lease that is kept for as long as its step runs."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.errors import InfrastructureError
from rune.engine.renewing import kept_alive


class Renewals:
    """Counts them, and fails after so many."""

    def __init__(self, fails_after: int = 1000) -> None:
        self.count = 0
        self.more = asyncio.Event()
        self._fails_after = fails_after

    async def renew(self) -> bool:
        self.count += 1
        self.more.set()
        if self.count > self._fails_after:
            raise InfrastructureError("State is away")
        return True


async def test_work_that_ends_soon_renews_nothing() -> None:
    renewals = Renewals()
    assert await kept_alive(asyncio.sleep(0, "done"), renewals.renew, 60) == "done"
    assert renewals.count == 0


async def test_work_that_takes_long_is_renewed_until_it_ends() -> None:
    renewals = Renewals()

    async def work() -> int:
        while renewals.count < 3:
            renewals.more.clear()
            await renewals.more.wait()
        return renewals.count

    assert await kept_alive(work(), renewals.renew, 0.001) == 3
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing renews it any more"


async def test_work_whose_lease_cannot_be_renewed_is_stopped() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def running() -> None:
        with pytest.raises(InfrastructureError, match="away"):
            await kept_alive(work(), Renewals(fails_after=1).renew, 0.001)
        await asyncio.sleep(0)  # It goes on: whoever ran the work is not cancelled.

    await asyncio.create_task(running())
    assert stopped.is_set()


async def test_who_stops_the_work_is_obeyed() -> None:
    renewals = Renewals()
    task = asyncio.create_task(kept_alive(asyncio.Event().wait(), renewals.renew, 0.001))
    await renewals.more.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
