"""Results that Rune keeps, as items: a list by reference, and the parts of a manifest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.errors import NodeError
from rune.core.playbook.references import manifest, part, result_ref
from rune.core.references import reference
from tests.nodes.fakes import FakeContext
from tests.nodes.sources.reading import items, portions


class Kept(FakeContext):
    """A context that finds what the test has kept."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}

    def keep(self, value: Any) -> str:
        name = reference(f"{len(self.values):040x}")
        self.values[name] = value
        return name

    async def load(self, reference: str) -> Any:
        return self.values[reference]


def listed(context: Kept, value: Any) -> dict[str, Any]:
    return result_ref(context.keep(value), msgspec.json.encode(value), value)


def in_parts(context: Kept, *parts: list[Any]) -> dict[str, Any]:
    return manifest([part(context.keep(p), msgspec.json.encode(p), 0, len(p)) for p in parts], [])


@pytest.mark.parametrize("wanted", [1, 2, 1000])
async def test_a_list_by_reference(wanted: int) -> None:
    context = Kept()
    assert await items(context, listed(context, [1, 2, 3]), wanted) == [1, 2, 3]


async def test_the_parts_of_a_manifest_are_portions() -> None:
    context = Kept()
    assert await portions(context, in_parts(context, [1, 2], [], [3])) == [[1, 2], [], [3]]
    assert await portions(context, in_parts(context)) == [[]]


async def test_what_a_manifest_refers_to_is_loaded() -> None:
    context = Kept()
    large = listed(context, "x" * 600_000)
    assert [list(map(len, p)) for p in await portions(context, in_parts(context, [large] * 3))] == [
        [600_000],
        [600_000],
        [600_000],
    ]


async def test_large_items_come_in_portions_of_a_megabyte_at_most() -> None:
    context = Kept()
    found = await portions(context, listed(context, ["x" * 300_000] * 7))
    assert list(map(len, found)) == [3, 3, 1]


@pytest.mark.parametrize("meta", [{}, {"meta": None}, {"meta": {"bytes": "many"}}])
async def test_a_reference_need_not_say_how_large_it_is(meta: dict[str, Any]) -> None:
    context = Kept()
    large = {"kind": "result_ref", "store": "rune", "ref": context.keep("x"), **meta}
    assert await items(context, in_parts(context, [large, 1])) == ["x", 1]


async def test_what_is_no_list_is_refused() -> None:
    context = Kept()
    with pytest.raises(NodeError, match="not a list"):
        await items(context, listed(context, {"a": 1}))
