"""What a node returns becomes JSON, or an error that says what is wrong with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from rune.core.errors import NodeError
from rune.core.json import as_json


@dataclass
class Point:
    x: Any


def refused(value: Any) -> str:
    """What is said about a value that JSON cannot hold."""
    with pytest.raises(NodeError) as raised:
        as_json(value)
    assert raised.value.code == "OUTPUT_NOT_JSON"
    return raised.value.message


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=50)
@given(values, st.booleans())
def test_what_json_can_hold_comes_back_as_it_was(value: Any, trusted: bool) -> None:
    assert msgspec.json.decode(as_json(value, trusted=trusted)) == value


@pytest.mark.parametrize(("value", "named"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [1, v], lambda v: {"a": (v,)}, Point])
def test_numbers_that_json_has_not_are_refused_wherever_they_hide(
    value: float, named: str, wrap: Any
) -> None:
    assert named in refused(wrap(value))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"a", "a bytes"),
        (bytearray(b"a"), "a bytearray"),
        (memoryview(b"a"), "a memoryview"),
        ({1}, "a set"),
        (frozenset({1}), "a frozenset"),
        (object(), "an object"),
        (ValueError("no"), "a ValueError"),
        (iter([1]), "a list_iterator"),
        (1j, "a complex"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"a": [v]}])
def test_what_is_no_json_is_refused_by_its_kind(value: Any, named: str, wrap: Any) -> None:
    assert f"returned {named}, which JSON cannot hold" in refused(wrap(value))


@pytest.mark.parametrize("key", [1, None, (1, 2), True, 1.5, b"a"])
def test_keys_must_be_text(key: Any) -> None:
    assert refused({key: 1}) == f"returned a map with the key {key!r}; keys must be text"
    assert "keys must be text" in refused([{"a": {key: 1}}])


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_bound() -> None:
    assert as_json(nested(200))
    assert "nested deeper than 200 levels" in refused(nested(201))


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append({"again": ring})
    assert "contains itself" in refused(ring)


def test_integers_may_be_as_large_as_python_prints_them() -> None:
    for number in (2**63, 2**64, -(2**63) - 1, 10**400):
        assert msgspec.json.decode(as_json(number)) == number
    assert "JSON cannot hold" in refused(10**5000)


def test_half_a_character_is_refused() -> None:
    assert "surrogates not allowed" in refused({"name": "\udcff.txt"})


def test_json_bytes_are_taken_as_they_are() -> None:
    raw = Raw(b'{"a": 1}')
    assert as_json(raw) is raw
    assert bytes(as_json({"of": raw}, trusted=True)) == b'{"of":{"a": 1}}'


def test_a_trusted_value_is_not_looked_through_but_still_encoded() -> None:
    assert bytes(as_json({1: "a"}, trusted=True)) == b'{"1":"a"}'
    with pytest.raises(NodeError, match="an object"):
        as_json([object()], trusted=True)
