"""For any source and any JSON, the language gives a value or an ExpressionError, and changes nothing."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rune.core.expressions import (
    COMPARISONS,
    FUNCTIONS,
    TESTS,
    ExpressionError,
    compare,
    compile_expression,
    compile_template,
    to_text,
)
from rune.core.expressions.values import UNDEFINED
from tests.core.expressions.data import json_values
from tests.core.expressions.scopes import Names

VALID = [
    "$a.b[0].c ~ 'x' | upper",
    "$a + 1 * (2 - $b) / 3 // 4 % 5",
    "[1, $a, {k: $b}] | map('string') | join(', ')",
    "'y' if $a is defined and $b not in [1, 2] else $c?.d",
    "$a | selectattr('b', '>=', 1) | map(attribute='c', default=null) | sort(reverse=true)",
    "{{ $a }} > 3 || !($b contains 'x') && true",
    "$a | default([]) | first | default('none', true)",
    "regex_replace($a, '(\\d+)', '<\\1>') ~ regex_find($b, '[a-z]{2,3}')",
    "date($a, '%d.%m.%Y', timezone='Europe/Berlin') ~ datediff($a, $b, 'days')",
    "range(1, $b, 2) | zip($a) | flatten | unique | slice(1, -1)",
    "merge({a: 1}, $a, deep=true) | items | dict | tojson | fromjson | hash('md5')",
]
TOKENS = [
    *("$a", "$b", "$c", "b", "c", "0", "1", "2.5", "1e3", "99999999999", "'x'", "''", '"y"', "true", "null"),
    *(
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "~",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "in",
        "not",
        "contains",
        "and",
        "or",
    ),
    *(
        "is",
        "if",
        "else",
        "|",
        "||",
        "&&",
        "!",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "{{",
        "}}",
        ",",
        ":",
        ".",
        "?.",
        "=",
    ),
    *FUNCTIONS,
    *(f"'{name}'" for name in (*FUNCTIONS, *TESTS)),
    *TESTS,
    *("$node", "attribute", "\\", "$", "#", "'", "\x00", "é", "😀", "\ud800"),
]

scopes = st.fixed_dictionaries({"$a": json_values, "$b": json_values}, optional={"$c": json_values})
soup = st.lists(st.sampled_from(TOKENS), max_size=14).map(" ".join) | st.lists(
    st.sampled_from(TOKENS), max_size=14
).map("".join)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid expression with a few cuts, insertions and repetitions."""
    source = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(source)))
        end = draw(st.integers(start, min(len(source), start + 6)))
        middle = draw(st.sampled_from(["", source[start:end] * 2, *TOKENS]) | st.text(max_size=2))
        source = source[:start] + middle + source[end:]
    return source


def _is_json(value: Any) -> bool:
    return value is not UNDEFINED and (json.dumps(value, allow_nan=False) is not None)


def _evaluate(source: str, data: dict[str, Any], lenient: bool) -> None:
    before = copy.deepcopy(data)
    refused, value = None, None
    try:
        value = compile_expression(source, lenient=lenient, numeric_strings=lenient).evaluate(Names(data))
    except ExpressionError as error:
        refused = error
    if refused is None:
        assert _is_json(value)
    else:
        assert refused.message
        assert refused.offset is None or 0 <= refused.offset <= len(source)
    assert repr(data) == repr(before)


@given(soup, scopes, st.booleans())
def test_token_soup(source: str, data: dict[str, Any], lenient: bool) -> None:
    _evaluate(source, data, lenient)


@given(mutated(), scopes, st.booleans())
def test_mutated_expressions(source: str, data: dict[str, Any], lenient: bool) -> None:
    _evaluate(source, data, lenient)


@given(st.text(max_size=40), scopes)
def test_any_text(source: str, data: dict[str, Any]) -> None:
    _evaluate(source, data, False)


@given(st.sampled_from(sorted(FUNCTIONS)), st.lists(json_values, max_size=4))
@example("date", ["2026-01-31", "%Q"])
@example("date", ["0001-01-01", None, "+23:59"])
@example("date", ["9999-12-31T23:59:59", None, "-23:59"])
@example("dateadd", ["9999-12-31", 1e300, "weeks"])
@example("date", [0, "%Y", "America"])
@example("date", ["01 01", None, "UTC", "%m %m"])
@example("round", [1.7e308, 2])
@example("ceil", [-1e300])
@example("pad_start", ["", 10, "\x00"])
@example("range", [0, 2**63, -(2**63)])
@example("timestamp", [1e300])
@example("urldecode", ["%ff%"])
@example("b64decode", ["A"])
@example("hash", ["\ud800"])
@example("fromjson", ['"\ud800"'])
@example("regex_replace", ["a", "(a)", "\\2"])
@example("regex_replace", ["a", "(a)", "\\g<x>"])
@example("regex_find", ["a", "(?P<n>a)", "m"])
@example("regex_find", ["a", "a", 2**62])
def test_every_function_with_any_arguments(name: str, arguments: list[Any]) -> None:
    data = {f"$v{index}": value for index, value in enumerate(arguments)}
    _evaluate(f"{name}({', '.join(data)})", data, False)


@given(st.sampled_from(sorted(TESTS)), json_values, json_values)
def test_every_test_with_any_arguments(name: str, left: Any, right: Any) -> None:
    argument = "" if TESTS[name].required < 2 else "($b)"
    if name.isidentifier():
        _evaluate(f"$a is {name}{argument}", {"$a": left, "$b": right}, False)
    _evaluate(f"[$a] | select('{name}'{', $b' if argument else ''})", {"$a": left, "$b": right}, False)


@given(
    st.sampled_from(["regex_match", "regex_find", "regex_findall"]),
    st.text("ab(){}[]?*+|\\^$.<>P=!:-#&1,dwpLiRx", max_size=15),
)
@example("regex_match", "(?P<a>a)(?P=b)")
@example("regex_match", "(?(9)a|b)")
@example("regex_match", "a{9}{9}")
@example("regex_match", "(?<=")
def test_any_pattern(name: str, pattern: str) -> None:
    _evaluate(f"{name}($a, $b)", {"$a": "aab(1)\n", "$b": pattern}, False)


@given(json_values | st.lists(st.sampled_from(TOKENS), max_size=8).map("".join), scopes, st.booleans())
def test_any_template(value: Any, data: dict[str, Any], lenient: bool) -> None:
    before = repr(data)
    with contextlib.suppress(ExpressionError):
        assert _is_json(compile_template(value, lenient=lenient).resolve(Names(data)))
    assert repr(data) == before


@given(json_values, st.dictionaries(st.just("$a"), json_values))
def test_data_comes_out_as_it_went_in(value: Any, more: dict[str, Any]) -> None:
    data = {**more, "$x": value}
    assert compile_template("$x").resolve(Names(data)) is value
    assert compile_template("{{ $x }}").resolve(Names(data)) is value


@given(st.sampled_from(sorted(COMPARISONS)), json_values, json_values)
def test_any_comparison(op: str, left: Any, right: Any) -> None:
    with contextlib.suppress(ExpressionError):
        assert compare(op, left, right) in (True, False)


@given(json_values)
def test_any_text_of_a_value(value: Any) -> None:
    assert isinstance(to_text(value), str)
