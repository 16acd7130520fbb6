"""Functions of regular expressions."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionTypeError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r"regex_match('order 42', '\d+')", True),
        (r"regex_match('order 42', '^\d+')", False),
        ("regex_match('ABC', 'b')", False),
        ("regex_match('ABC', 'b', ignore_case=true)", True),
        ("regex_match('ABC', '(?i)b')", True),
        (r"regex_find('a=1, b=2', '\w=\d')", "a=1"),
        (r"regex_find('a=1, b=2', '\w=(\d)')", "1"),
        (r"regex_find('a=1', '(\w)=(\d)')", "a=1"),
        (r"regex_find('a=1', '(\w)=(\d)', 2)", "1"),
        (r"regex_find('a=1', '(?P<key>\w)=', 'key')", "a"),
        (r"regex_find('a', '(b)?a')", None),
        (r"regex_find('a', 'x')", None),
        (r"regex_findall('a=1, b=2', '\d')", ["1", "2"]),
        (r"regex_findall('a=1, b=2', '(\w)=')", ["a", "b"]),
        (r"regex_findall('a=1, b=2', '(\w)=(\d)')", [["a", "1"], ["b", "2"]]),
        (r"regex_findall('a', 'x')", []),
        (r"regex_replace('a1b22', '\d+', '#')", "a#b#"),
        (r"regex_replace('a1b2', '\d', '#', 1)", "a#b2"),
        (r"regex_replace('John Smith', '(\w+) (\w+)', '\2 \1')", "Smith John"),
        (r"regex_replace('x', '(?P<n>x)', '<\g<n>>')", "<x>"),
        ("regex_replace('aAa', 'a', '', ignore_case=true)", ""),
        (r"regex_match('2026-01-31', '^\d{4}-\d{2}-\d{2}$')", True),
        (r"regex_match('{x}', '\{x\}')", True),
        (r"regex_match('a]b', 'a[]]b')", True),
        (r"regex_match('a]b', 'a[\]]b')", True),
        (r"regex_match('é', '\p{L}{1,2}')", True),
        ("['a1', 'b'] | select('matches', '[0-9]')", ["a1"]),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "regex_match('a', '(')",
            "`regex_match`: the pattern is not a regular expression: missing ) at position 1",
        ),
        ("regex_match(1, 'a')", "`regex_match` needs a string, not number"),
        ("regex_match('a', 1)", "`regex_match` needs a string, not number"),
        ("regex_find('a', 'a', 3)", "`regex_find`: the pattern has no such group"),
        ("regex_find('a', 'a', 'x')", "`regex_find`: the pattern has no such group"),
        (
            "regex_find('a', 'a', -1)",
            "`regex_find` needs an integer from 0 to 9223372036854775808, not this one",
        ),
        (r"regex_replace('a', 'a', '\7')", "`regex_replace`: no such group"),
        ("regex_replace('a', 'a', 1)", "`regex_replace` needs a string, not number"),
        (
            "regex_replace('a', 'a', '', -1)",
            "`regex_replace` needs an integer from 0 to 9223372036854775808, not this one",
        ),
        ("regex_match('a', '(?R)')", "`regex_match`: recursive patterns are not supported"),
        ("regex_match('a', '(a)(?1)')", "`regex_match`: recursive patterns are not supported"),
        ("regex_match('a', '(?P<n>a)(?&n)')", "`regex_match`: recursive patterns are not supported"),
        ("regex_match('a', '(?P<n>a)(?P>n)')", "`regex_match`: recursive patterns are not supported"),
        ("regex_match('a', '(?-1)(a)')", "`regex_match`: recursive patterns are not supported"),
        ("regex_match('a', '(?x) a')", "`regex_match`: the flags x and V are not supported"),
        ("regex_match('a', '(?V1)a')", "`regex_match`: the flags x and V are not supported"),
        ("regex_match('a', '(?#no)a')", "`regex_match`: comments in a pattern are not supported"),
        (
            "regex_match('a', '(?:a){e<=3}')",
            "`regex_match`: `{` in a pattern begins a repeat such as {2,5}; write \\{ for the character",
        ),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        evaluate(source)
    assert str(caught.value) == message
