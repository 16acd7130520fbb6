"""Results that are kept: by reference, and in parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune.core.errors import NodeError
from rune.nodes._results import Results, kept, loaded, part_of
from tests.nodes.store import Store, encoded


async def test_few_small_results_are_a_list() -> None:
    store: Any = Store()
    results = Results(store)
    for number in range(1000):
        await results.add(encoded(number))
    assert await results.whole() == Raw(encoded(list(range(1000))))
    assert store.values == {}


async def test_one_more_makes_it_a_manifest() -> None:
    store: Any = Store()
    results = Results(store)
    for number in range(1001):
        await results.add(encoded(number))
    whole = await results.whole()
    assert (whole["kind"], whole["count"], whole["preview"]) == ("manifest", 1001, [0, 1, 2])
    assert await loaded(store, whole) == list(range(1001))


async def test_parts_are_bounded_in_bytes_and_in_number() -> None:
    store: Any = Store()
    results = Results(store)
    for number in range(25_000):
        await results.add(encoded(number))
    for _ in range(20):
        await results.add(encoded("x" * 60_000))
    whole = await results.whole()
    assert all(part["count"] <= 10_000 and part["bytes"] <= 256 * 1024 for part in whole["parts"])
    assert [part["at"] for part in whole["parts"][1:]] == [
        part["at"] + part["count"] for part in whole["parts"][:-1]
    ]
    assert await loaded(store, whole) == [*range(25_000), *["x" * 60_000] * 20]


async def test_a_large_result_is_kept_and_found_again() -> None:
    store: Any = Store()
    large = {"rows": ["x" * 100] * 1000}
    stands = msgspec.json.decode(await kept(store, large))
    assert stands["kind"] == "result_ref"
    assert await loaded(store, stands) == large
    results = Results(store)
    await results.add(encoded(stands))
    whole = await results.whole()
    assert whole["kind"] == "manifest", "in a list it would be taken for a result"
    assert await part_of(store, whole["parts"][0]) == [large]
    assert await loaded(store, {"results": whole, "count": 1}) == {"results": [large], "count": 1}


async def test_a_part_that_is_no_list_is_refused() -> None:
    store: Any = Store()
    name, _ = await store.keep(encoded(5))
    with pytest.raises(NodeError, match="not a list"):
        await loaded(store, {"kind": "manifest", "store": "rune", "parts": [{"ref": name}]})


async def test_what_is_no_reference_stays_what_it_is() -> None:
    store: Any = Store()
    for value in (
        None,
        1,
        [1],
        {"results": [1]},
        {"results": [1], "count": 1, "shared": {"a": 1}},
        {"kind": 1},
    ):
        assert await loaded(store, value) is value
