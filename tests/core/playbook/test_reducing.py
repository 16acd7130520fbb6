"""What shards share, folded one value after another."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import NodeError
from rune.core.playbook.program import Reducer
from rune.core.playbook.reducing import check_shared, fold, nothing


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
        found = fold({"it": op}, "it", found, value)
    assert found == folded


def test_two_folds_share_nothing() -> None:
    fold({"it": "merge"}, "it", nothing("merge"), {"a": 1})
    assert nothing("merge") == {}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sum", "text", "'sum' is a sum: it cannot take string"),
        ("sum", None, "cannot take null"),
        ("merge", 5, "'merge' is a merge: it cannot take number"),
        ("merge", [["a", 1]], "cannot take array"),
        ("other", 1, "nobody reduces the shared value 'other'"),
    ],
)
def test_a_value_that_no_reducer_takes_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(NodeError, match=said) as raised:
        check_shared({"sum": "sum", "merge": "merge"}, {name: value})
    assert raised.value.code == "PLAYBOOK_SHARED"


def test_values_that_fit_are_not_folded_by_looking_at_them() -> None:
    check_shared({"a": "sum", "b": "max", "c": "append", "d": "merge"}, {"a": 1, "b": "x", "c": [], "d": {}})
