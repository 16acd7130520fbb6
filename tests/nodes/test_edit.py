"""The edit node."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rune.core.errors import DefinitionError, NodeError
from rune.core.outcome import Done
from rune.nodes.edit import Edit
from tests.nodes.fakes import FakeContext, made, run

PAYLOAD = {"name": "Ada", "address": {"city": "London", "geo": {"lat": 1}}, "n": 2}


async def edited(*assignments: dict[str, Any], payload: Any = PAYLOAD, **parameters: Any) -> Any:
    before = copy.deepcopy(payload)
    context = FakeContext({"$json": payload, "$fetch": {"body": {"users": [{"id": 1}, {"id": 2}]}}})
    outcome = await run(Edit, context, assignments=list(assignments), **parameters)
    assert isinstance(outcome, Done)
    assert outcome.working
    assert set(outcome.output) == {"$json"}
    assert payload == before, "the payload that came in was changed"
    return outcome.output["$json"]


async def test_fields_are_added_to_the_payload() -> None:
    result = await edited({"name": "n", "value": "{{ $json.n * 2 }}"}, {"name": "new", "value": "text"})
    assert result == {**PAYLOAD, "n": 4, "new": "text"}


async def test_dots_reach_into_objects() -> None:
    result = await edited(
        {"name": "address.city", "value": "Paris"},
        {"name": "address.geo.lon", "value": 3},
        {"name": "a.b.c", "value": 1},
    )
    assert result["address"] == {"city": "Paris", "geo": {"lat": 1, "lon": 3}}
    assert result["a"] == {"b": {"c": 1}}


async def test_keep_only_what_is_set() -> None:
    assert await edited({"name": "x", "value": "$json.name"}, mode="keep_only") == {"x": "Ada"}
    assert await edited({"name": "x", "value": 1}, payload=5, mode="keep_only") == {"x": 1}


async def test_another_target() -> None:
    assert await edited({"name": "x", "value": 1}, target_path="$json.address.geo") == {"lat": 1, "x": 1}


async def test_each_object_of_a_list() -> None:
    result = await edited({"name": "seen", "value": True}, target_path="$fetch.body.users")
    assert result == [{"id": 1, "seen": True}, {"id": 2, "seen": True}]


async def test_no_payload_is_an_empty_one() -> None:
    outcome = await run(Edit, FakeContext(), assignments=[{"name": "x", "value": 1}])
    assert outcome == Done({"$json": {"x": 1}}, working=True)


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        ("any", {"a": 1}, {"a": 1}),
        ("string", 5, "5"),
        ("string", {"a": 1}, '{"a":1}'),
        ("string", None, ""),
        ("number", " 2.5 ", 2.5),
        ("number", "7", 7),
        ("number", True, 1),
        ("integer", "7.0", 7),
        ("boolean", "Yes", True),
        ("boolean", "0", False),
        ("boolean", 0, False),
        ("object", '{"a": 1}', {"a": 1}),
        ("object", {"a": 1}, {"a": 1}),
        ("array", "[1, 2]", [1, 2]),
        ("json", "null", None),
        ("json", [1], [1]),
    ],
)
async def test_conversions(type: str, value: Any, expected: Any) -> None:
    context = FakeContext({"$json": {}, "$v": value})
    outcome = await run(Edit, context, assignments=[{"name": "x", "value": "$v", "type": type}])
    assert isinstance(outcome, Done)
    assert outcome.output == {"$json": {"x": expected}}


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("number", "many"),
        ("number", "nan"),
        ("number", [1]),
        ("integer", "2.5"),
        ("boolean", "perhaps"),
        ("boolean", []),
        ("object", "[1]"),
        ("object", "{broken"),
        ("array", {"a": 1}),
        ("json", "{broken"),
    ],
)
async def test_what_does_not_convert(type: str, value: Any) -> None:
    context = FakeContext({"$json": {}, "$v": value})
    with pytest.raises(NodeError, match=f"'x'.*{type}") as caught:
        await run(Edit, context, assignments=[{"name": "x", "value": "$v", "type": type}])
    assert caught.value.code == "EDIT_TYPE"


async def test_field_of_what_is_no_object() -> None:
    with pytest.raises(NodeError, match="'name' is string") as caught:
        await edited({"name": "name.first", "value": 1})
    assert caught.value.code == "EDIT_PATH"


@pytest.mark.parametrize("payload", [5, "text", [1]])
async def test_payload_that_is_no_object(payload: Any) -> None:
    with pytest.raises(NodeError, match="object"):
        await edited({"name": "x", "value": 1}, payload=payload)


@pytest.mark.parametrize(
    "assignment", [{"value": 1}, {"name": "", "value": 1}, {"name": "x", "value": 1, "type": "text"}]
)
def test_wrong_assignments_are_refused(assignment: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        made(Edit, FakeContext(), {"assignments": [assignment]})
