"""Functions of arrays and objects."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("length('abc')", 3),
        ("[1, 2] | count", 2),
        ("len({a: 1})", 1),
        ("first([1, 2])", 1),
        ("first('ab')", "a"),
        ("first([])", None),
        ("last([1, 2])", 2),
        ("last('')", None),
        ("[1, 2, 3] | slice(1)", [2, 3]),
        ("[1, 2, 3] | slice(0, -1)", [1, 2]),
        ("'abc' | slice(stop=2)", "ab"),
        ("reverse([1, 2])", [2, 1]),
        ("reverse('ab')", "ba"),
        ("[3, 'a', null, true, 1.5, [1], {}] | sort", [None, True, 1.5, 3, "a", [1], {}]),
        ("[1, 3, 2] | sort(reverse=true)", [3, 2, 1]),
        ("[{n: 2}, {n: 1}, {}] | sort('n')", [{}, {"n": 1}, {"n": 2}]),
        ("[{n: {m: 2}}, {n: {m: 1}}] | sort(attribute='n.m')", [{"n": {"m": 1}}, {"n": {"m": 2}}]),
        ("[{n: 1, i: 1}, {n: 1, i: 2}] | sort('n', true) | map(attribute='i')", [1, 2]),
        ("[1, 1.0, true, '1', 1, [1], [1], {a: [1]}, {a: [1]}] | unique", [1, True, "1", [1], {"a": [1]}]),
        ("[[1], [true]] | unique | length", 2),
        ("[{n: 1, i: 1}, {n: 1, i: 2}] | unique('n')", [{"n": 1, "i": 1}]),
        ("[1, 2, 2, 3] | difference([2, 'x'])", [1, 3]),
        ("[1, 2, 2, 3] | intersection([2, 3.0])", [2, 2, 3]),
        ("[1, [2, [3, []]], 'ab'] | flatten", [1, 2, 3, "ab"]),
        ("[1, [2, [3]]] | flatten(1)", [1, 2, [3]]),
        ("[[1]] | flatten(depth=0)", [[1]]),
        ("zip([1, 2, 3], ['a', 'b'])", [[1, "a"], [2, "b"]]),
        ("zip([1])", [[1]]),
        ("[1, 2, 3] | chunk(2)", [[1, 2], [3]]),
        ("list('ab')", ["a", "b"]),
        ("list({a: 1})", ["a"]),
        ("list(null)", []),
        ("array(5)", [5]),
        ("contains([1, 2], 2)", True),
        ("'abc' | contains('x')", False),
        ("{b: 1, a: 2} | keys", ["b", "a"]),
        ("values({b: 1, a: 2})", [1, 2]),
        ("items({a: 1})", [["a", 1]]),
        ("dict([['a', 1], [2, 3]])", {"a": 1, "2": 3}),
        ("{a: 1} | items | dict", {"a": 1}),
        ("object({a: 1})", {"a": 1}),
        ("get({a: 1}, 'a')", 1),
        ("get({a: 1}, 'b')", None),
        ("get({a: 1}, 'b', 2)", 2),
        ("get({a: 1}, 'b') | default(3)", 3),
        ("get([1, 2], -1)", 2),
        ("get(null, 'a', default=0)", 0),
        ("merge({a: 1, b: {c: 1}}, {b: {d: 2}}, {e: 3})", {"a": 1, "b": {"d": 2}, "e": 3}),
        ("merge({b: {c: 1, x: 1}}, {b: {c: 2}}, deep=true)", {"b": {"c": 2, "x": 1}}),
        ("merge({})", {}),
        ("{a: 1, b: 2, c: 3} | pick('a', 'c', 'z')", {"a": 1, "c": 3}),
        ("{a: 1, b: 2} | pick(['b'])", {"b": 2}),
        ("{a: 1, b: 2} | omit('a')", {"b": 2}),
        (
            "[{t: 'x', n: 1}, {t: 'y'}, {t: 'x'}] | group_by('t')",
            {"x": [{"t": "x", "n": 1}, {"t": "x"}], "y": [{"t": "y"}]},
        ),
        ("[{t: 1}, {t: null}] | group_by('t') | keys", ["1", ""]),
        ("[{'a.b': 1, a: {b: 2}}] | map(attribute='a.b')", [1]),
        ("[{a: [{b: 2}]}] | map(attribute='a.0.b')", [2]),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("length(5)", "`length` needs a string, an array or an object, not number"),
        ("first({})", "`first` needs an array or a string, not object"),
        ("last(null)", "`last` needs an array or a string, not null"),
        ("slice({}, 1)", "`slice` needs an array or a string, not object"),
        ("slice([], 'a')", "`slice` needs an integer, not string"),
        ("reverse(1)", "`reverse` needs an array or a string, not number"),
        ("sort('ab')", "`sort` needs an array, not string"),
        ("sort([], 1)", "`sort` needs a string, not number"),
        ("unique(1)", "`unique` needs an array, not number"),
        ("unique([{}], 'n')", "`unique`: object has no 'n'"),
        ("difference([], 1)", "`difference` needs an array, not number"),
        ("intersection(1, [])", "`intersection` needs an array, not number"),
        ("flatten(1)", "`flatten` needs an array, not number"),
        ("flatten([], -1)", "`flatten` needs an integer from 0 to 9223372036854775808, not this one"),
        ("zip([], 1)", "`zip` needs an array, not number"),
        ("chunk([1], 0)", "`chunk` needs an integer from 1 to 9223372036854775808, not this one"),
        ("contains(1, 2)", "number cannot contain anything"),
        ("keys([])", "`keys` needs an object, not array"),
        ("values(1)", "`values` needs an object, not number"),
        ("items(null)", "`items` needs an object, not null"),
        ("dict([1])", "`dict` needs arrays of two: a key and a value"),
        ("dict([['a']])", "`dict` needs arrays of two: a key and a value"),
        ("dict(1)", "`dict` needs an array, not number"),
        ("get({}, null)", "a key is a string or an integer, not null"),
        ("merge(1)", "`merge` needs an object, not number"),
        ("merge({}, [])", "`merge` needs an object, not array"),
        ("pick([], 'a')", "`pick` needs an object, not array"),
        ("pick({}, 1)", "`pick` needs a string, not number"),
        ("omit(1, 'a')", "`omit` needs an object, not number"),
        ("group_by({}, 'a')", "`group_by` needs an array, not object"),
        ("group_by([1], 'a')", "`group_by`: number has no 'a'"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(source)
    assert str(caught.value) == message
