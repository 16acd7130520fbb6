"""The nodes that work on lists: filter, sort, limit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.errors import DefinitionError, NodeError
from rune.core.node import NodeType
from rune.core.outcome import Done
from rune.nodes.filter import Filter
from rune.nodes.limit import Limit
from rune.nodes.sort import Sort
from tests.nodes.fakes import FakeContext, made, run

PEOPLE: list[dict[str, Any]] = [
    {"name": "Ada", "age": 36, "address": {"city": "London"}, "tags": ["x"]},
    {"name": "Bob", "age": 12, "address": {"city": "Paris"}, "tags": []},
    {"name": "Cyd", "age": None, "tags": ["x", "y"]},
    {"name": "Dan", "age": 36, "address": {"city": "Paris"}},
]


async def names(type: type[NodeType], items: Any = PEOPLE, **parameters: Any) -> list[str]:
    outcome = await run(type, FakeContext({"$json": items, "$limit": 20}), **parameters)
    assert isinstance(outcome, Done)
    assert outcome.working
    kept = outcome.output["$json"]
    assert outcome.output == {"$json": kept, "count": len(kept), "original_count": len(items)}
    return [item["name"] for item in kept]


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ([("age", "gt", 20)], ["Ada", "Dan"]),
        ([("age", "gt", "20")], ["Ada", "Dan"]),
        ([("age", ">=", "{{ $limit }}")], ["Ada", "Dan"]),
        ([("age", "eq", None)], ["Cyd"]),
        ([("address.city", "eq", "Paris")], ["Bob", "Dan"]),
        ([("address.city", "neq", "Paris")], ["Ada"]),
        ([("tags", "contains", "x")], ["Ada", "Cyd"]),
        ([("tags.1", "eq", "y")], ["Cyd"]),
        ([("tags[0]", "eq", "x")], ["Ada", "Cyd"]),
        ([("name", "in", ["Ada", "Bob"])], ["Ada", "Bob"]),
        ([("age", "gt", 20), ("address.city", "eq", "Paris")], ["Dan"]),
    ],
)
async def test_filter(rules: list[tuple[str, str, Any]], kept: list[str]) -> None:
    given = [{"field": f, "operator": o, "value": v} for f, o, v in rules]
    assert await names(Filter, rules=given) == kept


async def test_filter_by_any_rule() -> None:
    rules = [
        {"field": "age", "operator": "lt", "value": 20},
        {"field": "tags.1", "operator": "eq", "value": "y"},
    ]
    assert await names(Filter, rules=rules, match_mode="any") == ["Bob", "Cyd"]


async def test_filter_plain_values_of_another_list() -> None:
    context = FakeContext({"$n": [5, 1, 7]})
    outcome = await run(Filter, context, input_array="$n", rules=[{"operator": "gte", "value": 5}])
    assert isinstance(outcome, Done)
    assert outcome.output["$json"] == [5, 7]


async def test_filter_says_which_item_cannot_be_compared() -> None:
    with pytest.raises(NodeError, match="item 0, field 'name'"):
        await names(Filter, rules=[{"field": "name", "operator": "gt", "value": 3}])


@pytest.mark.parametrize(
    ("rules", "order"),
    [
        ([{"field": "age"}], ["Cyd", "Bob", "Ada", "Dan"]),
        ([{"field": "age", "direction": "desc"}], ["Ada", "Dan", "Bob", "Cyd"]),
        (
            [{"field": "age", "direction": "desc"}, {"field": "name", "direction": "descending"}],
            ["Dan", "Ada", "Bob", "Cyd"],
        ),
        ([{"field": "address.city"}, {"field": "age", "type": "number"}], ["Cyd", "Ada", "Bob", "Dan"]),
    ],
)
async def test_sort(rules: list[dict[str, Any]], order: list[str]) -> None:
    assert await names(Sort, rules=rules) == order


@pytest.mark.parametrize(
    ("type", "values", "order"),
    [
        ("number", ["10", 9, "8.5"], ["8.5", 9, "10"]),
        ("string", [10, 9, "8"], [10, "8", 9]),
        ("date", ["2026-02-01", "2025-12-31T23:00:00Z", 0], [0, "2025-12-31T23:00:00Z", "2026-02-01"]),
        ("boolean", [True, "false"], ["false", True]),
        ("auto", ["b", 1, None, [1], {"a": 1}, True, "a"], [None, True, 1, "a", "b", [1], {"a": 1}]),
    ],
)
async def test_sort_by_type(type: str, values: list[Any], order: list[Any]) -> None:
    outcome = await run(Sort, FakeContext({"$json": values}), rules=[{"type": type}])
    assert isinstance(outcome, Done)
    assert outcome.output["$json"] == order


async def test_sort_says_what_it_cannot_take() -> None:
    with pytest.raises(NodeError, match="'Ada' is not a number"):
        await names(Sort, rules=[{"field": "name", "type": "number"}])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())))
async def test_sort_is_stable_both_ways(pairs: list[tuple[int, int]]) -> None:
    items: list[dict[str, int]] = [{"k": k, "v": v} for k, v in pairs]
    for direction, sign in (("asc", 1), ("desc", -1)):
        outcome = await run(
            Sort, FakeContext({"$json": items}), rules=[{"field": "k", "direction": direction}]
        )
        assert isinstance(outcome, Done)
        assert outcome.output["$json"] == sorted(items, key=lambda item: sign * item["k"])


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (2, 2), ("3", 3), (99, 4)])
async def test_limit(count: Any, kept: int) -> None:
    assert await names(Limit, count=count) == [p["name"] for p in PEOPLE[:kept]]


@pytest.mark.parametrize(
    ("type", "parameters"),
    [(Filter, {"rules": [{"field": "a"}]}), (Sort, {"rules": [{"field": "a"}]}), (Limit, {"count": 1})],
)
async def test_what_is_no_list(type: type[NodeType], parameters: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="object, not an array") as caught:
        await run(type, FakeContext({"$json": {"a": 1}}), **parameters)
    assert caught.value.code == "INPUT_NOT_ARRAY"


@pytest.mark.parametrize(
    ("type", "parameters"),
    [
        (Filter, {"rules": []}),
        (Filter, {"rules": [{"field": "a", "operator": "like"}]}),
        (Filter, {"rules": [{"field": "a"}], "match_mode": "some"}),
        (Sort, {"rules": []}),
        (Sort, {"rules": [{"field": "a", "direction": "up"}]}),
        (Limit, {}),
        (Limit, {"count": -1}),
    ],
)
def test_wrong_parameters_are_refused(type: type[NodeType], parameters: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        made(type, FakeContext({"$json": []}), parameters)
