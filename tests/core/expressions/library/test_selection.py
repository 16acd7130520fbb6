"""Functions that apply a function or a test to each element."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("['a', 'b'] | map('upper')", ["A", "B"]),
        ("['a-b', 'c-d'] | map('split', '-')", [["a", "b"], ["c", "d"]]),
        ("[1.25, 2.5] | map('round', 1)", [1.3, 2.5]),
        ("[[], [1]] | map('first')", [None, 1]),
        ("[{a: 1}, {a: 2}] | map(attribute='a')", [1, 2]),
        ("[{a: 1}, {}] | map(attribute='a', default=0)", [1, 0]),
        ("[{a: 'x'}] | map('upper', attribute='a')", ["X"]),
        ("[1, null] | map('default', 5)", [1, None]),
        ("map(['a'], function='upper')", ["A"]),
        ("map([{a: 1}], null, attribute='a')", [1]),
        ("[1, null] | map('coalesce', 5)", [1, 5]),
        ("[0, 1, '', 'a', null] | select", [1, "a"]),
        ("[1, 2, 3, 4] | select('even')", [2, 4]),
        ("[1, 2, 3, 4] | select('>', 2)", [3, 4]),
        ("[1, 2, 3] | select('in', [1, 3])", [1, 3]),
        ("['ab', 'cb'] | select('startswith', 'a')", ["ab"]),
        ("select([1, 2], test='odd')", [1]),
        ("[0, 1, 2] | reject", [0]),
        ("[1, 2, 3] | reject('==', 2)", [1, 3]),
        ("[{a: 1}, {a: 0}, {}] | selectattr('a')", [{"a": 1}]),
        ("[{a: 1}, {a: 5}] | selectattr('a', '>=', 5)", [{"a": 5}]),
        ("[{a: 1}, {b: 5}] | selectattr('a', 'defined')", [{"a": 1}]),
        ("[{a: 1}, {b: 5}] | selectattr('a', 'none')", [{"b": 5}]),
        ("[{a: {b: 1}}, {a: 2}] | selectattr('a.b', 'eq', 1)", [{"a": {"b": 1}}]),
        ("[{a: 1}, {a: 0}, {}] | rejectattr('a')", [{"a": 0}, {}]),
        ("[{a: 1}, {a: 5}] | rejectattr('a', '>=', 5)", [{"a": 1}]),
        ("any([0, 1])", True),
        ("any([])", False),
        ("[1, 3] | any('even')", False),
        ("all([1, 0])", False),
        ("all([])", True),
        ("[1, 3] | all('odd')", True),
        ("[1, 3] | all('<', 4)", True),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("map('ab', 'upper')", "`map` needs an array, not string"),
        ("map([1])", "`map` needs the name of a function or an attribute"),
        ("map([1], attribute=1)", "item 0: `map` needs a string, not number"),
        ("map([{name: 1}], attribute='nme')", "item 0: `map`: object has no 'nme'; did you mean 'name'?"),
        ("select(1)", "`select` needs an array, not number"),
        ("reject(1)", "`reject` needs an array, not number"),
        ("selectattr(1, 'a')", "`selectattr` needs an array, not number"),
        ("selectattr([], 1)", "`selectattr` needs a string, not number"),
        ("rejectattr({}, 'a')", "`rejectattr` needs an array, not object"),
        ("[{}] | selectattr('a', '>', 1)", "item 0: cannot order null and number"),
        ("any(1)", "`any` needs an array, not number"),
        ("all(null)", "`all` needs an array, not null"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(source)
    assert str(caught.value) == message
