"""Functions that turn one kind of value into another."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionTypeError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("string(1.5)", "1.5"),
        ("str(null)", ""),
        ("string([1])", "[1]"),
        ("int('12')", 12),
        ("int(' -3 ')", -3),
        ("int('3.9')", 3),
        ("int(-3.9)", -3),
        ("int(true)", 1),
        ("int('x', 0)", 0),
        ("int(null, default=null)", None),
        ("float('1.5')", 1.5),
        ("float(2)", 2.0),
        ("float('nan', 1)", 1),
        ("float('1_0', 'no')", "no"),
        ("bool('Yes')", True),
        ("boolean('off')", False),
        ("bool(0)", False),
        ("bool([1])", True),
        ("type(null)", "null"),
        ("type(true)", "boolean"),
        ("type(1.5)", "number"),
        ("type('')", "string"),
        ("type([])", "array"),
        ("type({})", "object"),
        ("tojson({a: [1, null, 'é']})", '{"a":[1,null,"é"]}'),
        ("tojson([1, {}], 2)", "[\n  1,\n  {}\n]"),
        ("tojson('x')", '"x"'),
        ("fromjson('{\"a\": [1, 2.5, null, true]}')", {"a": [1, 2.5, None, True]}),
        ("fromjson('123456789012345678901234567890')", 123456789012345678901234567890),
        ("{a: [1]} | tojson | fromjson", {"a": [1]}),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int('x')", "`int`: 'x' is not an integer; give a default, as in int(0)"),
        ("int([])", "`int`: array is not an integer; give a default, as in int(0)"),
        ("float('inf')", "`float`: 'inf' is not a number; give a default, as in float(0)"),
        ("float(null)", "`float`: null is not a number; give a default, as in float(0)"),
        ("bool('maybe')", "`bool`: 'maybe' is neither true nor false"),
        ("tojson(1, 99)", "`tojson` needs an integer from 0 to 8, not this one"),
        ("fromjson(1)", "`fromjson` needs a string, not number"),
        ("fromjson('{')", "`fromjson`: Input data was truncated"),
        ("fromjson('')", "`fromjson`: Input data was truncated"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        evaluate(source)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "[NaN]", "1e999", "{'a': 1}", "[1,]", "nope"]
)
def test_fromjson_takes_json_only(text: str) -> None:
    with pytest.raises(ExpressionTypeError, match="`fromjson`: "):
        evaluate("fromjson($t)", {"$t": text})
