"""Room for steps: taken in turn, lent by those that wait."""

from __future__ import annotations

import asyncio

import pytest

from rune.engine.slots import Slots


async def test_a_step_that_waits_makes_room_for_the_one_it_waits_for() -> None:
    slots = Slots(1)
    other = asyncio.Event()
    order: list[str] = []

    async def caller() -> None:
        async with slots.taken() as slot:
            order.append("caller")
            async with slot.lent():
                await other.wait()
            order.append("caller again")

    async def called() -> None:
        async with slots.taken():
            order.append("called")
            other.set()

    await asyncio.wait_for(asyncio.gather(caller(), called()), 5)
    assert order == ["caller", "called", "caller again"]


async def test_it_goes_on_only_when_there_is_room_again() -> None:
    slots = Slots(1)
    over = asyncio.Event()
    async with slots.taken() as slot:
        async with slot.lent():
            busy = asyncio.create_task(_busy(slots, over))
            await asyncio.sleep(0)
            over.set()
        assert busy.done()
    async with slots.taken():
        pass


async def _busy(slots: Slots, over: asyncio.Event) -> None:
    async with slots.taken():
        await over.wait()


async def test_whoever_learns_of_a_failure_goes_on_in_its_slot() -> None:
    slots = Slots(1)
    async with slots.taken() as slot:
        with pytest.raises(ValueError, match="the child failed"):
            async with slot.lent():
                raise ValueError("the child failed")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), slots.taken():
                raise AssertionError("there is one slot, not two")


async def test_several_waits_of_one_step_lend_one_slot() -> None:
    slots = Slots(1)
    told: list[str] = []
    async with slots.taken(lambda: told.append("lent")) as slot, slot.lent():
        async with slot.lent():
            pass
        async with slots.taken():
            pass
    assert told == ["lent"], "it is said once"
    async with slots.taken(), asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), slots.taken():
                raise AssertionError("there is one slot, not two")


async def test_whoever_is_cancelled_while_it_waits_gives_back_nothing_twice() -> None:
    slots = Slots(1)

    async def waits() -> None:
        async with slots.taken() as slot, slot.lent():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    async with slots.taken():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), slots.taken():
                raise AssertionError("there is one slot, not two")
