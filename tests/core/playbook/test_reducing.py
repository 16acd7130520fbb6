"""What shards share, folded one value after another."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.playbook.program import Reducer
from rune.core.playbook.reducing import fold, nothing


@pytest.mark.parametrize(
    ("op", "values", "folded"),
    [
        ("sum", [], 0),
        ("sum", [1, 2.5], 3.5),
        ("min", [], None),
        ("min", [3, 1, 2], 1),
        ("max", [3, 1, 2], 3),
        ("merge", [], {}),
        ("merge", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
    ],
)
def test_values_are_folded_in_order(op: Reducer, values: list[Any], folded: Any) -> None:
    found = nothing(op)
    for value in values:
        found = fold(op, found, value)
    assert found == folded


def test_two_folds_share_nothing() -> None:
    fold("merge", nothing("merge"), {"a": 1})
    assert nothing("merge") == {}
