"""The fan-in of a loop: what shards left, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rune.core.node import Gathered
from rune.nodes.playbook.fanin import FanIn
from tests.nodes.store import Store, encoded


class Join(Store):
    """The context of a join that has opened."""

    barrier = "loop"


def gathered(slots: dict[int, Any], total: int) -> Gathered:
    async def pages() -> AsyncIterator[list[tuple[int, bytes]]]:
        for index, slot in slots.items():
            yield [(index, encoded(slot))]

    return Gathered(total=total, pages=pages)


def several(at: int, *results: Any) -> dict[str, Any]:
    return {"results": results, "elements": {"at": at, "count": len(results), "of": 7}}


LOST = {"error": {"message": "its worker died", "code": "WORKER_LOST"}}
TOLD = {"error": {**LOST["error"], "details": {"shard_elements": {"at": 3, "count": 3, "of": 7}}}}


@pytest.mark.parametrize(
    ("slots", "results"),
    [
        ({0: several(0, 1, 2, 3), 1: several(3, 4, 5, 6), 2: several(6, 7)}, [1, 2, 3, 4, 5, 6, 7]),
        ({0: LOST, 1: several(3, 4, 5, 6), 2: several(6, 7)}, [None, None, None, 4, 5, 6, 7]),
        ({0: LOST, 1: LOST, 2: several(6, 7)}, [None] * 6 + [7]),
        ({1: several(3, 4, 5, 6)}, [None, None, None, 4, 5, 6, None]),
        ({0: LOST, 1: TOLD, 2: LOST}, [None] * 7),
        ({0: several(0, 1, 2, 3), 1: LOST, 2: LOST}, [1, 2, 3] + [None] * 4),
    ],
)
async def test_elements_of_lost_shards_are_null_in_their_places(
    slots: dict[int, Any], results: list[Any]
) -> None:
    context: Any = Join()
    fan_in = FanIn(context, {}, naming=False)
    await fan_in.read(gathered(slots, 3))
    assert msgspec.json.decode(await fan_in.result()) == {"results": results, "count": 7}


async def test_shards_of_one_element_are_found_by_their_indices() -> None:
    context: Any = Join()
    fan_in = FanIn(context, {}, naming=False)
    await fan_in.read(gathered({1: {"results": ["b"]}, 2: LOST, 4: {"results": ["e"]}}, 6))
    whole = msgspec.json.decode(await fan_in.result())
    assert whole == {"results": [None, "b", None, None, "e", None], "count": 6}
    assert fan_in.first_error["code"] == "WORKER_LOST"


async def test_references_are_made_as_slots_are_read() -> None:
    context: Any = Join()
    kept: list[int] = []

    async def pages() -> AsyncIterator[list[tuple[int, bytes]]]:
        for index in range(4):
            yield [(index, encoded({"results": [f"{index}" * 1000]}))]
            kept.append(len(context.values))

    fan_in = FanIn(context, {}, naming=True)
    await fan_in.read(Gathered(total=4, pages=pages))
    assert kept == [1, 2, 3, 4], "what was read is stored, and not held"
    refs = await fan_in.refs()
    assert [await context.load(ref["ref"]) for ref in refs] == [f"{index}" * 1000 for index in range(4)]
    assert [ref["shard_id"] for ref in refs] == ["loop.0", "loop.1", "loop.2", "loop.3"]
