"""What each construct of the language gives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.expressions.scopes import evaluate, same

LITERALS: list[tuple[str, Any]] = [
    ("1", 1),
    ("1.5", 1.5),
    ("1e3", 1000.0),
    ("2E-1", 0.2),
    ("-7", -7),
    ("'a'", "a"),
    ('"it\'s"', "it's"),
    (r"'it\'s'", "it's"),
    (r"'a\nb\tc\\d\re'", "a\nb\tc\\d\re"),
    (r"'\u00e9\ud83d\ude00'", "é😀"),
    (r"'\d+\b'", "\\d+\\b"),
    (r"'\uZZ'", "\\uZZ"),
    ("true", True),
    ("True", True),
    ("false", False),
    ("False", False),
    ("null", None),
    ("none", None),
    ("None", None),
    ("[]", []),
    ("[1, 'a', [2],]", [1, "a", [2]]),
    ("{}", {}),
    ("{a: 1, 'b c': 2, 3: {x: []}, if: 4,}", {"a": 1, "b c": 2, "3": {"x": []}, "if": 4}),
    ("{a: 1, a: 2}", {"a": 2}),
    ("(1)", 1),
    ("  1  ", 1),
]

PATHS: list[tuple[str, Any]] = [
    ("$n", 5),
    ("$fetch.status", 200),
    ("$fetch.body.items[0].id", 7),
    ("$fetch.body.items[-1].name", "Bob"),
    ("$fetch['body'].items[$n - 4].id", 8),
    ('$fetch.headers["content-type"]', "text/plain"),
    ("$fetch.headers['content' ~ '-type']", "text/plain"),
    ("$fetch.body.items.1.id", 8),
    ("$fetch.body.0", "zero"),
    ("$fetch.body['items'][0]['name']", "Ada"),
    ("workload.rows[2]", 3),
    ("workload.rows[1:]", [2, 3]),
    ("workload.rows[:1]", [1]),
    ("workload.rows[0:2][1]", 2),
    ("workload.rows[-2:-1]", [2]),
    ("'abc'[1:]", "bc"),
    ("workload.rows[:]", [1, 2, 3]),
    ("[1, 2][1]", 2),
    ("{a: {b: 3}}.a.b", 3),
    ("($fetch.body).next", None),
    ("$node.fetch.status", 200),
    ('$node["fetch"].status', 200),
    ("$node.n", 5),
    # ?. forgives what is missing on either side of it
    ("$fetch?.status", 200),
    ("$fetch.body.next?.page", None),
    ("$fetch.body?.nothing", None),
    ("$fetch.nothing?.deeper.still", None),
    ("$nowhere?.a.b", None),
    ("$fetch.body.items?.[9]", None),
    ("$fetch.body.items?.[1]?.name", "Bob"),
    ("{a: 1}?.b", None),
    ("(1 if false)?.b", None),
]

OPERATORS: list[tuple[str, Any]] = [
    ("1 + 2", 3),
    ("1 + 2.0", 3.0),
    ("'a' + 'b'", "ab"),
    ("[1] + [2]", [1, 2]),
    ("5 - 7", -2),
    ("3 * 4", 12),
    ("'ab' * 3", "ababab"),
    ("2 * 'x'", "xx"),
    ("'x' * -1", ""),
    ("7 / 2", 3.5),
    ("4 / 2", 2.0),
    ("7 // 2", 3),
    ("-7 // 2", -4),
    ("7 % 3", 1),
    ("-7 % 3", 2),
    ("7.5 % 2", 1.5),
    ("-$n", -5),
    ("+$n", 5),
    ("- -3", 3),
    ("'a' ~ 1 ~ null ~ true ~ 1.5 ~ [1, 'x'] ~ {a: 1}", 'a1true1.5[1,"x"]{"a":1}'),
    ("1 == 1.0", True),
    ("1 == '1'", False),
    ("true == 1", False),
    ("[true] == [1]", False),
    ("{a: [1, {b: 2}]} == {a: [1, {b: 2.0}]}", True),
    ("{a: 1} == {b: 1}", False),
    ("[1] == [1, 2]", False),
    ("null == null", True),
    ("null == false", False),
    ("'a' != 'b'", True),
    ("1 < 2", True),
    ("2 <= 2", True),
    ("'b' > 'a'", True),
    ("2 >= 3", False),
    ("1 < 2 < 3", True),
    ("1 < 3 < 2", False),
    ("3 > 2 == 2", True),
    ("2 in [1, 2]", True),
    ("true in [1]", False),
    ("'b' in 'abc'", True),
    ("'a' in {a: 1}", True),
    ("1 in {a: 1}", False),
    ("2 not in [1, 2]", False),
    ("[1, 2] contains 2", True),
    ("'abc' contains 'x'", False),
    ("1 and 2", 2),
    ("0 and 2", 0),
    ("0 or 'x'", "x"),
    ("1 or 1 / 0", 1),
    ("false and 1 / 0", False),
    ("true && false || true", True),
    ("not 0", True),
    ("!''", True),
    ("not not 1", True),
    ("'y' if $n > 3 else 'n'", "y"),
    ("'y' if $n > 9 else 'n'", "n"),
    ("'y' if false", None),
    ("1 if false else 2 if false else 3", 3),
    ("1 if true else 1 / 0", 1),
]

PRECEDENCE: list[tuple[str, Any]] = [
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("10 - 2 - 3", 5),
    ("2 * 3 % 4", 2),
    ("'n=' ~ 1 + 2", "n=3"),
    ("'a' ~ 'b' == 'ab'", True),
    ("not 1 == 2", True),
    ("not 2 in [1]", True),
    ("!1 == false", True),
    ("true or false and false", True),
    ("1 + 1 is number", True),
    ("1 == 1 is number", False),
    ("-1 | abs", 1),
    ("-$n | abs", -5),
    ("2 + 'abc' | length", 5),
    ("!$item.nothing | default(true)", False),
    ("1 if 0 or 1 else 2", 1),
]

TESTS: list[tuple[str, Any]] = [
    ("$n is defined", True),
    ("$nowhere is defined", False),
    ("$fetch.nothing.deeper is defined", False),
    ("$fetch.body.next is defined", True),
    ("$nowhere is undefined", True),
    ("$fetch.body.next.page is undefined", True),
    ("null is none", True),
    ("null is null", True),
    ("1 is not none", True),
    ("1 is number", True),
    ("true is number", False),
    ("1 is integer", True),
    ("1.0 is integer", False),
    ("1.0 is float", True),
    ("'a' is string", True),
    ("'a' is text", True),
    ("false is boolean", True),
    ("[] is list", True),
    ("[] is array", True),
    ("{} is map", True),
    ("{} is object", True),
    ("[] is object", False),
    ("2 is even", True),
    ("3 is odd", True),
    ("9 is divisibleby 3", True),
    ("9 is divisibleby(0)", False),
    ("'' is empty", True),
    ("null is empty", True),
    ("0 is empty", False),
    ("true is true", True),
    ("1 is true", False),
    ("false is false", True),
    ("3 is eq 3", True),
    ("3 is ne 3", False),
    ("3 is lt 4", True),
    ("3 is le 3", True),
    ("3 is gt 4", False),
    ("3 is ge 3", True),
    ("3 is in [1, 3]", True),
    ("[3] is contains 3", True),
    ("'abc' is startswith 'a'", True),
    ("'abc' is endswith('a')", False),
    ("'abc' is matches '^a.c$'", True),
    ("'abc' is not matches '^b'", True),
]


@pytest.mark.parametrize(("source", "expected"), LITERALS + PATHS + OPERATORS + PRECEDENCE + TESTS)
def test_gives(source: str, expected: Any) -> None:
    value = evaluate(source)
    assert same(value, expected), value


def test_braces_inside_an_expression_are_parentheses() -> None:
    assert evaluate("{{ $n }} > 3") is True
    assert evaluate("{{ $n + 1 }} * 2") == 12
    assert evaluate("{{ {'a': {'b': $n}} }}.a.b") == 5
    assert evaluate("{'a': {'b': 1}}") == {"a": {"b": 1}}


def test_lenient_takes_what_is_missing_for_null() -> None:
    for source in ("nothing", "nothing.at.all", "workload.none.x", "workload.rows[9]", "workload.base.x"):
        assert evaluate(source, lenient=True) is None
    assert evaluate("not iter.more", lenient=True) is True
    assert evaluate("iter.page | default(1)", lenient=True) == 1
    assert evaluate("iter.page is defined", lenient=True) is False
    assert evaluate("iter.page is none", lenient=True) is True
    assert evaluate("'p' ~ iter.page", lenient=True) == "p"
    assert evaluate("[{a: 1}, {}] | map(attribute='a')", lenient=True) == [1, None]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'5' == 5", True),
        ("5 != '5'", False),
        ("'10' > 9", True),
        ("9 < '10'", True),
        ("'1.5' <= 1.5", True),
        ("' 7 ' >= 7", True),
        ("'10' > '9'", False),
        ("'x' == 5", False),
        ("'1-2' == 5", False),
        ("'' == 0", False),
        ("5 in ['5']", True),
        ("['1'] contains 1", True),
        ("5 not in ['5']", False),
    ],
)
def test_numeric_strings_compare_as_numbers_beside_a_number(source: str, expected: bool) -> None:
    assert evaluate(source, numeric_strings=True) is expected


def test_without_that_flag_they_do_not() -> None:
    assert evaluate("'5' == 5") is False


def test_a_missing_path_opts_out_by_default() -> None:
    assert evaluate("$nowhere.a.b | default('x')") == "x"
    assert evaluate("$fetch.nothing | upper | default('x')") == "x"
    assert evaluate("default($fetch.nothing, 3)") == 3
    assert evaluate("$empty | first | default(0)") == 0
    assert evaluate("('a' if false) | default('b')") == "b"
    assert evaluate("$nowhere | default($alsonowhere) | default(1)") == 1
    assert evaluate("$fetch.body.next | default(1)") is None
    assert evaluate("$fetch.body.next | default(1, true)") == 1
    assert evaluate("$fetch.body.next | default(fallback=2, falsy=true)") == 2
    assert evaluate("$nowhere | default") == ""
    assert evaluate("$nowhere | d(4)") == 4
    assert evaluate("$n | default(1 / 0)") == 5
    assert evaluate("coalesce($nowhere.x, null, $fetch.body.next, 0, 1 / 0)") == 0
    assert evaluate("coalesce($nowhere.x)") is None


def test_node_names_stand_for_ids() -> None:
    aliases = {"Fetch Users": "fetch", "Fetch": "fetch", "n": "fetch", "item": "fetch", "fetch": "n"}
    for source in (
        '$node["Fetch Users"].status',
        "$node.Fetch.status",
        "$Fetch.status",
        "$node['fetch'].status",
    ):
        assert evaluate(source, aliases=aliases) == 200
    assert evaluate("$item.price", aliases=aliases) == 10, "the names of the language come first"
    assert evaluate(r"$node['Fetch\u0020Users'].status", aliases=aliases) == 200
