"""Hearing of the ends of calls: from here or from State, with one question for all of an execution."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rune.core.errors import InfrastructureError
from rune.engine.hearing import Hearing


class Office:
    """Where it is written how calls have ended."""

    def __init__(self) -> None:
        self.ended: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, list[str]]] = []
        self.trouble: Exception | None = None
        self.hearing = Hearing(self.find)

    async def find(self, execution: str, keys: Sequence[str]) -> dict[str, str]:
        self.asked.append((execution, sorted(keys)))
        if self.trouble is not None:
            raise self.trouble
        return {key: self.ended[execution, key] for key in keys if (execution, key) in self.ended}

    async def look(self) -> None:
        """Wait until somebody has looked."""
        looks = len(self.asked)
        while len(self.asked) == looks:
            await asyncio.sleep(0.001)


@pytest.fixture
async def office() -> Office:
    """Nothing has ended yet."""
    return Office()


async def test_what_has_ended_already_is_heard_at_once(office: Office) -> None:
    office.ended["e", "k"] = "well"
    assert await office.hearing.hear("e", "k") == "well"


async def test_all_who_wait_are_asked_for_together(office: Office) -> None:
    waiting = [asyncio.create_task(office.hearing.hear("e", f"k{i}")) for i in range(100)]
    other = asyncio.create_task(office.hearing.hear("f", "k"))
    await office.look()
    assert [(execution, len(keys)) for execution, keys in office.asked] == [("e", 100), ("f", 1)]
    office.ended |= {("e", f"k{i}"): str(i) for i in range(100)} | {("f", "k"): "other"}
    assert await asyncio.gather(*waiting, other) == [*map(str, range(100)), "other"]
    asked = len(office.asked)
    await asyncio.sleep(0.05)
    assert len(office.asked) == asked, "nobody waits any more"


async def test_what_is_told_here_is_heard_without_a_rest(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rune.engine.hearing._FIRST_REST", 60.0)
    waiting = asyncio.create_task(office.hearing.hear("e", "k"))
    await office.look()
    office.hearing.told("e", "another")
    office.ended["e", "k"] = "well"
    office.hearing.told("e", "k")
    assert await asyncio.wait_for(waiting, 5) == "well"


async def test_whoever_waits_learns_that_state_is_out_of_reach(office: Office) -> None:
    office.trouble = InfrastructureError("gone")
    with pytest.raises(InfrastructureError):
        await office.hearing.hear("e", "k")
    office.trouble = None
    office.ended["e", "k"] = "well"
    assert await office.hearing.hear("e", "k") == "well"


async def test_two_may_wait_for_the_same_and_one_may_leave(office: Office) -> None:
    one, other = (asyncio.create_task(office.hearing.hear("e", "k")) for _ in range(2))
    await office.look()
    one.cancel()
    office.ended["e", "k"] = "well"
    assert await other == "well"
    assert one.cancelled()
