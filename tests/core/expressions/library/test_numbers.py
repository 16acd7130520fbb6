"""Functions of numbers."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionTypeError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("abs(-3)", 3),
        ("abs(2.5)", 2.5),
        ("ceil(1.2)", 2),
        ("ceil(-1.2)", -1),
        ("ceil(3)", 3),
        ("floor(1.8)", 1),
        ("floor(-1.2)", -2),
        ("round(2.5)", 3),
        ("round(-2.5)", -3),
        ("round(2.4)", 2),
        ("round(2.675, 2)", 2.68),
        ("round(1.005, digits=2)", 1.01),
        ("round(1234, -2)", 1200),
        ("round(1250, -2)", 1300),
        ("round(7, 2)", 7),
        ("sum([1, 2.5])", 3.5),
        ("sum([])", 0),
        ("[{p: 1}, {p: 2}] | sum(attribute='p')", 3),
        ("[{p: {q: 1}}] | sum('p.q', start=10)", 11),
        ("avg([1, 2])", 1.5),
        ("mean([2, 4])", 3.0),
        ("avg([])", None),
        ("[{p: 1}] | avg('p')", 1.0),
        ("min([3, 1, 2])", 1),
        ("min(3, 1.5)", 1.5),
        ("min('b', 'a')", "a"),
        ("min([])", None),
        ("min([]) | default(0)", 0),
        ("[{n: 2}, {n: 1}] | min(attribute='n')", {"n": 1}),
        ("max([3, 1, 2])", 3),
        ("max('b', 'a')", "b"),
        ("[{n: 2}, {n: 1}] | max(attribute='n')", {"n": 2}),
        ("max([1, 1.0])", 1),
        ("range(3)", [0, 1, 2]),
        ("range(1, 4)", [1, 2, 3]),
        ("range(5, 0, -2)", [5, 3, 1]),
        ("range(3, 1)", []),
        ("range(2.0)", [0, 1]),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("abs('a')", "`abs` needs a number, not string"),
        ("abs(true)", "`abs` needs a number, not boolean"),
        ("ceil(null)", "`ceil` needs a number, not null"),
        ("floor([])", "`floor` needs a number, not array"),
        ("round('1')", "`round` needs a number, not string"),
        ("round(1.5, 99)", "`round` needs an integer from -30 to 30, not this one"),
        ("sum(1)", "`sum` needs an array, not number"),
        ("sum([1, 'a'])", "`sum` needs numbers, but item 1 is string"),
        ("sum([true])", "`sum` needs numbers, but item 0 is boolean"),
        ("sum([1], start='a')", "`sum` needs a number, not string"),
        ("sum([1], 1)", "`sum` needs a string, not number"),
        ("avg([null])", "`avg` needs numbers, but item 0 is null"),
        ("min(1)", "`min` needs an array, not number"),
        ("min([1, 'a'])", "cannot order string and number; convert with int(), float() or string()"),
        ("max([null])", "cannot order null and null"),
        ("range('a')", "`range` needs an integer, not string"),
        ("range(1, 2, 0)", "`range` needs a step that is not zero"),
        ("range(1.5)", "`range` needs an integer, not number"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        evaluate(source)
    assert str(caught.value) == message
