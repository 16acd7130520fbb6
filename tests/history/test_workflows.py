"""Workflows, and their versions, which never change."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.errors import ConflictError
from rune.history import History
from rune.history.paging import BadCursor
from rune.history.workflows import Draft, StoredWorkflow, VersionMismatch


def draft(definition: str = '{"v":1}', **fields: object) -> Draft:
    """A version of a workflow."""
    return Draft(**{"name": "orders", "definition": definition, **fields})  # type: ignore[arg-type]


async def test_what_is_created_can_be_read(history: History) -> None:
    created = await history.workflows.create(draft(source="v: 1", format="playbook", description="Of today"))
    assert created.id.startswith("wf_")
    assert (created.version, created.published, created.source) == (1, None, "v: 1")
    assert await history.workflows.get(created.id) == created
    assert await history.workflows.get("nobody") is None


async def test_an_id_is_taken_once_and_for_ever(history: History) -> None:
    await history.workflows.create(draft(), "mine")
    await history.workflows.delete("mine")
    with pytest.raises(ConflictError):
        await history.workflows.create(draft(), "mine")


async def test_an_update_is_a_new_version_and_the_old_one_stays(history: History) -> None:
    await history.workflows.create(draft(note="first", author="ada"), "w")
    updated = await history.workflows.update("w", 1, draft('{"v":2}', name="new", publish=True))
    assert updated is not None
    assert (updated.version, updated.published, updated.name) == (2, 2, "new")
    assert await history.workflows.get("w") == updated
    old = await history.workflows.version("w", 1)
    assert old is not None
    assert (old.definition, old.note, old.author) == ('{"v":1}', "first", "ada")
    versions = (await history.workflows.versions("w")).items
    assert [version.version for version in versions] == [2, 1]
    assert await history.workflows.definition(old.hash) == '{"v":1}'


async def test_an_update_of_another_version_is_refused_and_leaves_nothing(history: History) -> None:
    await history.workflows.create(draft(), "w")
    await history.workflows.update("w", 1, draft('{"v":2}'))
    with pytest.raises(VersionMismatch, match="now 2") as mismatch:
        await history.workflows.update("w", 1, draft('{"v":3}'))
    assert mismatch.value.current == 2
    current = await history.workflows.get("w")
    assert current is not None
    assert current.definition == '{"v":2}'
    assert await history.workflows.update("nobody", 1, draft()) is None


async def test_of_many_who_update_at_the_same_time_one_does(history: History) -> None:
    await history.workflows.create(draft(), "w")
    answers = await asyncio.gather(
        *(history.workflows.update("w", 1, draft(f'{{"v":{i}}}')) for i in range(8)), return_exceptions=True
    )
    (winner,) = [answer for answer in answers if isinstance(answer, StoredWorkflow)]
    assert sum(isinstance(answer, VersionMismatch) for answer in answers) == 7
    assert await history.workflows.get("w") == winner
    stored = await history.workflows.version("w", 2)
    assert stored is not None
    assert stored.definition == winner.definition


async def test_publishing(history: History) -> None:
    await history.workflows.create(draft(publish=True), "w")
    await history.workflows.update("w", 1, draft('{"v":2}'))
    current = await history.workflows.get("w")
    assert current is not None
    assert current.published == 1
    assert await history.workflows.publish("w", 2)
    assert not await history.workflows.publish("w", 3)
    assert not await history.workflows.publish("nobody", 1)
    assert await history.workflows.publish("w", None)


async def test_what_is_deleted_is_seen_no_more_but_its_versions_are(history: History) -> None:
    await history.workflows.create(draft(), "w")
    assert await history.workflows.delete("w")
    assert not await history.workflows.delete("w")
    assert await history.workflows.get("w") is None
    assert (await history.workflows.list()).items == []
    assert await history.workflows.version("w", 1) is not None


async def test_a_list_goes_on_where_the_page_before_ended(history: History) -> None:
    for name in ("b", "a", "c", "a"):
        await history.workflows.create(draft(name=name))
    first = await history.workflows.list(limit=3)
    rest = await history.workflows.list(limit=3, cursor=first.next)
    assert [workflow.name for workflow in first.items] == ["a", "a", "b"]
    assert [workflow.name for workflow in rest.items] == ["c"]
    assert rest.next is None


async def test_a_list_of_those_with_a_text(history: History) -> None:
    for name in ("100% Orders", "1000 orders", "under_score"):
        await history.workflows.create(draft(name=name))
    found = await history.workflows.list(text="100% o")
    assert [workflow.name for workflow in found.items] == ["100% Orders"]
    assert len((await history.workflows.list(text="ORDERS")).items) == 2
    assert [w.name for w in (await history.workflows.list(text="r_s")).items] == ["under_score"]


@pytest.mark.parametrize("cursor", ["", "x", "WzFd", "W10", "%%%", "WyJhXHUwMDAwIiwgImIiXQ"])
async def test_a_cursor_that_no_page_gave(history: History, cursor: str) -> None:
    with pytest.raises(BadCursor):
        await history.workflows.list(cursor=cursor)
