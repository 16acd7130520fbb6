"""One order over all JSON values, and equality."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given

from rune.core.expressions import sort_key
from rune.core.expressions.limits import Budget
from rune.core.expressions.ordering import equal
from tests.core.expressions.data import json_values

ASCENDING: list[Any] = [
    None,
    False,
    True,
    -1,
    0.5,
    1,
    2**300,
    "",
    "a",
    "b",
    [],
    [None],
    [1],
    [1, 2],
    ["a"],
    {},
    {"a": 1},
    {"a": 2},
    {"a": 2, "b": 0},
    {"b": 0},
]


def test_kinds_have_an_order() -> None:
    assert sorted(reversed(ASCENDING), key=sort_key) == ASCENDING
    for left, right in itertools.combinations(ASCENDING, 2):
        assert sort_key(left) < sort_key(right)


@given(json_values, json_values, json_values)
def test_the_order_is_total(a: Any, b: Any, c: Any) -> None:
    ka, kb, kc = sort_key(a), sort_key(b), sort_key(c)
    assert (ka < kb) + (kb < ka) + (ka == kb) == 1
    if ka <= kb and kb <= kc:
        assert ka <= kc


@given(json_values, json_values)
def test_equality_agrees_with_the_order(a: Any, b: Any) -> None:
    assert equal(a, b, Budget()) == (sort_key(a) == sort_key(b))
    assert equal(a, b, Budget()) == equal(b, a, Budget())
    assert equal(a, a, Budget())


@pytest.mark.parametrize(
    ("left", "right"), [(1, True), (0, False), ([1], [True]), ({"a": 0}, {"a": False}), ("1", 1), (None, 0)]
)
def test_kinds_are_never_equal(left: Any, right: Any) -> None:
    assert not equal(left, right, Budget())
