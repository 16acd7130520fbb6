"""Functions of strings."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.expressions import ExpressionTypeError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'aB' | lower", "ab"),
        ("upper('straße')", "STRASSE"),
        ("'hELLO world' | capitalize", "Hello world"),
        ("'hello wORLD  x' | title", "Hello World  X"),
        ("'  a b ' | trim", "a b"),
        ("'xxaxx' | trim('x')", "a"),
        ("' a ' | strip", "a"),
        ("'a,b,,c' | split(',')", ["a", "b", "", "c"]),
        ("'a,b,c' | split(',', 1)", ["a", "b,c"]),
        ("'a,b,c' | split(',', limit=0)", ["a,b,c"]),
        ("' a  b ' | split", ["a", "b"]),
        ("'' | split(',')", [""]),
        ("[1, 'a', null, true] | join('-')", "1-a--true"),
        ("['a', 'b'] | join", "ab"),
        ("[{n: 1}, {n: 2}] | join(', ', attribute='n')", "1, 2"),
        ("[] | join(',')", ""),
        ("'aaa' | replace('a', 'b')", "bbb"),
        ("'aaa' | replace('a', 'b', 2)", "bba"),
        ("'aaa' | replace('a', 'b', count=0)", "aaa"),
        ("'abc' | startswith('ab')", True),
        ("'abc' | endswith('ab')", False),
        ("repeat('ab', 2)", "abab"),
        ("repeat('ab', -2)", ""),
        ("7 | pad_start(3, '0')", "007"),
        ("'abc' | pad_start(2)", "abc"),
        ("'a' | pad_end(3)", "a  "),
        ("'abcdef' | truncate(4)", "abc…"),
        ("'abcdef' | truncate(6)", "abcdef"),
        ("'abcdef' | truncate(4, '...')", "a..."),
        ("'abcdef' | truncate(1, '...')", "..."),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("lower(1)", "`lower` needs a string, not number"),
        ("upper(null)", "`upper` needs a string, not null"),
        ("capitalize([])", "`capitalize` needs a string, not array"),
        ("title({})", "`title` needs a string, not object"),
        ("trim(1)", "`trim` needs a string, not number"),
        ("trim('a', 1)", "`trim` needs a string, not number"),
        ("split('a', '')", "`split` needs a separator that is not empty; use list() for characters"),
        ("split(1)", "`split` needs a string, not number"),
        ("split('a', ',', 'x')", "`split` needs an integer, not string"),
        ("join('abc')", "`join` needs an array, not string"),
        ("join([1], 2)", "`join` needs a string, not number"),
        ("replace('a', 1, '')", "`replace` needs a string, not number"),
        ("startswith('a', null)", "`startswith` needs a string, not null"),
        ("endswith(1, 'a')", "`endswith` needs a string, not number"),
        ("repeat('a', 'b')", "`repeat` needs an integer, not string"),
        ("pad_start('a', 3, 'xy')", "`pad_start` fills with one character"),
        ("pad_end('a', -1)", "`pad_end` needs an integer from 0 to 1000000, not this one"),
        ("truncate('a', -1)", "`truncate` needs an integer from 0 to 9223372036854775808, not this one"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        evaluate(source)
    assert str(caught.value) == message
