"""Triggers, and due times that are taken on once."""

from __future__ import annotations

import asyncio
from itertools import chain

import msgspec
import pytest

from rune.core.errors import ConflictError
from rune.history import Database
from rune.history.migrating import migrate
from rune.history.triggers import Firing, Trigger, Triggers, firing_id


@pytest.fixture
async def triggers(database: Database) -> Triggers:
    """Triggers in an empty history."""
    await migrate(database)
    return Triggers(database)


def hourly(id: str = "t1", due: float | None = 3600.0) -> Trigger:
    """A schedule that is due at one o'clock."""
    return Trigger(
        id=id,
        workflow_id="w",
        kind="schedule",
        config={"cron": "0 * * * *"},
        next_due=due,
        created_at=1.0,
        updated_at=1.0,
    )


async def test_a_trigger_is_kept_found_changed_and_removed(triggers: Triggers) -> None:
    hook = Trigger(
        id="h",
        workflow_id="w",
        kind="webhook",
        config={"methods": ["POST"]},
        token_hash="abc",
        sealed=b"\0\xff",
        created_at=1.0,
        updated_at=1.0,
        created_by="ada",
    )
    await triggers.create(hook)
    assert await triggers.get("h") == hook
    assert await triggers.by_token("abc") == hook
    assert await triggers.by_token("abd") is None
    with pytest.raises(ConflictError):
        await triggers.create(msgspec.structs.replace(hook, id="h2"))

    changed = msgspec.structs.replace(hook, enabled=False, version=2, token_hash="def")
    assert await triggers.replace(changed)
    assert not await triggers.replace(changed)  # somebody else was faster
    assert await triggers.get("h") == changed
    assert await triggers.by_token("abc") is None

    assert await triggers.delete("h")
    assert not await triggers.delete("h")
    assert await triggers.get("h") is None


async def test_triggers_are_listed_in_pages(triggers: Triggers) -> None:
    for number in range(5):
        await triggers.create(hourly(f"t{number}"))
    assert [t.id for t in await triggers.page("", 3)] == ["t0", "t1", "t2"]
    assert [t.id for t in await triggers.page("t2", 3)] == ["t3", "t4"]
    assert await triggers.page("", 3, kind="webhook") == []
    assert await triggers.page("", 3, workflow="other") == []


async def test_of_many_masters_one_takes_on_a_due_time(triggers: Triggers) -> None:
    await triggers.create(hourly())
    assert await triggers.next_due() == 3600.0
    (trigger,) = await triggers.due(3601.0)
    claims = await asyncio.gather(
        *(triggers.claim(trigger, [3600.0], 7200.0, 3601.0, 3631.0) for _ in range(8))
    )
    assert sorted(map(len, claims)) == [0] * 7 + [1]
    assert [*chain(*claims)] == [Firing("t1", 3600.0, firing_id("t1", 3600.0))]
    assert await triggers.due(3602.0) == []


async def test_what_was_taken_on_and_not_settled_is_taken_on_by_another(triggers: Triggers) -> None:
    await triggers.create(hourly())
    (trigger,) = await triggers.due(3600.0)
    (mine,) = await triggers.claim(trigger, [3600.0], 7200.0, 3601.0, 3631.0)
    assert await triggers.next_due() == 3631.0
    assert await triggers.abandoned(3630.0, 3660.0) == []
    # The one who had taken it on has died.
    both = await asyncio.gather(*(triggers.abandoned(3631.0, 3661.0) for _ in range(2)))
    assert [*chain(*both)] == [mine]
    await triggers.settle(mine, 3640.0)
    assert await triggers.abandoned(4000.0, 4030.0) == []
    assert await triggers.next_due() == 7200.0
    (kept,) = await triggers.firings("t1")
    assert (kept.due, kept.settled_at, kept.error) == (3600.0, 3640.0, None)


async def test_a_due_time_never_comes_back(triggers: Triggers) -> None:
    await triggers.create(hourly())
    (trigger,) = await triggers.due(3600.0)
    await triggers.claim(trigger, [3600.0], 7200.0, 3601.0, 3631.0)
    # The clock was set back, and somebody changes the schedule: it is due at one again.
    again = msgspec.structs.replace(trigger, version=2)
    assert await triggers.replace(again)
    assert await triggers.claim(again, [3600.0], 7200.0, 3601.0, 3631.0) == []
    assert await triggers.next_due() == 3631.0


async def test_a_schedule_that_was_changed_meanwhile_does_not_fire(triggers: Triggers) -> None:
    await triggers.create(hourly())
    (seen,) = await triggers.due(3600.0)
    assert await triggers.replace(msgspec.structs.replace(seen, version=2, enabled=False))
    assert await triggers.claim(seen, [3600.0], 7200.0, 3601.0, 3631.0) == []
    assert await triggers.firings("t1") == []
    assert await triggers.next_due() is None


async def test_a_signing_key_is_made_once(triggers: Triggers) -> None:
    keys = await asyncio.gather(*(triggers.key("resume", bytes([n])) for n in range(4)))
    assert len(set(keys)) == 1
    assert await triggers.key("resume", b"another") == keys[0]
