"""Functions that encode, hash and name."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.expressions import ExpressionTypeError
from tests.core.expressions.scopes import evaluate, same

SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("b64encode('é')", "w6k="),
        ("b64encode({a: 1})", "eyJhIjoxfQ=="),
        ("b64decode('w6k=')", "é"),
        ("b64decode('w6k')", "é"),
        ("b64decode(' Pz8_ ')", "???"),
        ("b64decode('')", ""),
        ("urlencode('a b/é?&~')", "a%20b%2F%C3%A9%3F%26~"),
        ("urlencode({a: 'x y', b: [1, true], c: null})", "a=x%20y&b=1&b=true&c="),
        ("urlencode(5)", "5"),
        ("urldecode('a%20b%2F%C3%A9+')", "a b/é+"),
        ("hash('abc')", SHA256_OF_ABC),
        ("hash('abc', 'md5')", "900150983cd24fb0d6963f7d28e17f72"),
        ("hash('abc', algorithm='sha1')", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("hash('abc', 'sha512') | length", 128),
        ("hash({a: 1, b: 2}) == hash({b: 2, a: 1})", True),
        ("hash({a: 1}) == hash('{\"a\":1}')", True),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("b64decode('a*b')", "`b64decode`: the string is not base 64"),
        ("b64decode('A')", "`b64decode`: the string is not base 64"),
        ("b64decode('/w==')", "`b64decode`: the bytes are not text"),
        ("b64decode(1)", "`b64decode` needs a string, not number"),
        ("urldecode(1)", "`urldecode` needs a string, not number"),
        ("hash('a', 'crc')", "`hash` does not know 'crc'; one of sha256, md5, sha1, sha512"),
        ("hash('a', 1)", "`hash` does not know number; one of sha256, md5, sha1, sha512"),
        (r"b64encode('\ud800')", "the string holds half of a surrogate pair, which UTF-8 cannot hold"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        evaluate(source)
    assert str(caught.value) == message


@given(st.text())
def test_what_is_encoded_can_be_decoded(text: str) -> None:
    data = {"$t": text}
    assert evaluate("$t | b64encode | b64decode", data) == text
    assert evaluate("$t | urlencode | urldecode", data) == text


def test_uuid_is_random() -> None:
    first, second = evaluate("[uuid(), uuid()]")
    assert first != second
    assert uuid.UUID(first).version == 4
