"""The keys of requests, on both databases."""

from __future__ import annotations

import asyncio

import pytest

from rune.history import Database
from rune.history.idempotency import HELD, KEPT, Answer, Claim, Idempotency, InProgress, OtherRequest
from rune.history.migrating import migrate


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
async def keys(database: Database, clock: _Clock) -> Idempotency:
    await migrate(database)
    return Idempotency(database, clock)


_ANSWER = Answer(201, {"location": "/api/things/1"}, '{"id": "1"}')


async def test_the_first_gets_the_claim_and_the_second_its_answer(keys: Idempotency) -> None:
    claim = await keys.claim("ada POST /x", "k", "body")
    assert isinstance(claim, Claim)
    with pytest.raises(InProgress):
        await keys.claim("ada POST /x", "k", "body")
    await keys.settle(claim, _ANSWER)
    assert await keys.claim("ada POST /x", "k", "body") == _ANSWER


async def test_another_body_is_refused_whether_or_not_the_first_has_ended(keys: Idempotency) -> None:
    claim = await keys.claim("s", "k", "body")
    assert isinstance(claim, Claim)
    with pytest.raises(OtherRequest):
        await keys.claim("s", "k", "another")
    await keys.settle(claim, _ANSWER)
    with pytest.raises(OtherRequest):
        await keys.claim("s", "k", "another")


async def test_scopes_do_not_know_each_other(keys: Idempotency) -> None:
    first = await keys.claim("ada", "k", "body")
    second = await keys.claim("bob", "k", "another")
    assert isinstance(first, Claim)
    assert isinstance(second, Claim)
    assert first.identity != second.identity


async def test_of_many_at_once_one_gets_the_claim(keys: Idempotency) -> None:
    found = await asyncio.gather(*(keys.claim("s", "k", "b") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(each, Claim) for each in found) == 1
    assert sum(isinstance(each, InProgress) for each in found) == 19


async def test_after_a_death_another_goes_on_under_the_same_identity(
    keys: Idempotency, clock: _Clock
) -> None:
    dead = await keys.claim("s", "k", "b")
    clock.now += HELD
    heir = await keys.claim("s", "k", "b")
    assert isinstance(dead, Claim)
    assert isinstance(heir, Claim)
    assert heir.identity == dead.identity
    # The one that was thought dead comes late: its answer does not count.
    await keys.settle(dead, Answer(200, {}, "late"))
    with pytest.raises(InProgress):
        await keys.claim("s", "k", "b")


async def test_what_was_refused_frees_the_key_for_another_body(keys: Idempotency) -> None:
    claim = await keys.claim("s", "k", "b")
    assert isinstance(claim, Claim)
    await keys.release(claim)
    assert isinstance(await keys.claim("s", "k", "another"), Claim)


async def test_what_was_abandoned_goes_on_at_once(keys: Idempotency) -> None:
    claim = await keys.claim("s", "k", "b")
    assert isinstance(claim, Claim)
    await keys.abandon(claim)
    again = await keys.claim("s", "k", "b")
    assert isinstance(again, Claim)
    assert again.identity == claim.identity


async def test_a_day_later_the_key_is_new(keys: Idempotency, clock: _Clock) -> None:
    claim = await keys.claim("s", "k", "b")
    assert isinstance(claim, Claim)
    await keys.settle(claim, _ANSWER)
    clock.now += KEPT
    again = await keys.claim("s", "k", "another")
    assert isinstance(again, Claim)
    assert again.identity != claim.identity


async def test_old_answers_are_forgotten(keys: Idempotency, clock: _Clock, database: Database) -> None:
    old = await keys.claim("s", "old", "b")
    clock.now += KEPT
    await keys.claim("s", "new", "b")
    await keys.forget()
    rows = await database.fetch("SELECT key FROM idempotency")
    assert [row["key"] for row in rows] == ["new"]
    assert isinstance(old, Claim)
