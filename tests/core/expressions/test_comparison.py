"""Comparisons by name, as rules write them."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import (
    COMPARISONS,
    ExpressionSyntaxError,
    ExpressionTypeError,
    LimitExceeded,
    compare,
)

TABLE: list[tuple[str, Any, Any, bool]] = [
    ("eq", 1, 1.0, True),
    ("eq", "5", 5, True),
    ("eq", True, 1, False),
    ("==", "a", "a", True),
    ("equals", "a", "b", False),
    ("neq", 1, "1", False),
    ("ne", 1, 2, True),
    ("!=", None, 0, True),
    ("not_equals", "a", "a", False),
    ("gt", "10", 9, True),
    (">", 1, 1, False),
    ("gte", 9, "9.0", True),
    ("ge", 1, 2, False),
    (">=", "b", "a", True),
    ("lt", 9, "10", True),
    ("<", "10", "9", True),
    ("lte", 2, 2, True),
    ("le", 3, 2, False),
    ("<=", 3, 3, True),
    ("in", 5, ["5"], True),
    ("in", "a", "cat", True),
    ("not_in", 5, [5], False),
    ("not in", 5, [6], True),
    ("contains", [1, 2], "2", True),
    ("contains", {"a": 1}, "a", True),
    ("not_contains", "abc", "b", False),
    ("starts_with", "abc", "ab", True),
    ("startswith", "abc", "b", False),
    ("ends_with", "abc", "bc", True),
    ("endswith", "abc", "b", False),
    ("matches", "abc", "^a.c$", True),
    ("regex", "abc", "^b", False),
    ("empty", [], None, True),
    ("empty", 0, None, False),
    ("not_empty", "x", None, True),
]


@pytest.mark.parametrize(("op", "left", "right", "expected"), TABLE)
def test_compare(op: str, left: Any, right: Any, expected: bool) -> None:
    assert compare(op, left, right) is expected


def test_every_comparison_is_in_the_table() -> None:
    assert {row[0] for row in TABLE} == set(COMPARISONS)


def test_an_unknown_operator_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ExpressionSyntaxError, match="there is no operator 'contain'; did you mean 'contains'"
    ):
        compare("contain", 1, 2)
    with pytest.raises(ExpressionSyntaxError, match="there is no operator '7'"):
        compare(7, 1, 2)  # type: ignore[arg-type]


def test_kinds_without_an_order_are_refused() -> None:
    with pytest.raises(ExpressionTypeError, match="cannot order null and number"):
        compare("lt", None, 1)


def test_deep_data_is_refused() -> None:
    left: Any = []
    right: Any = []
    for _ in range(10_000):
        left, right = [left], [right]
    with pytest.raises(LimitExceeded, match="nested too deep"):
        compare("eq", left, right)
