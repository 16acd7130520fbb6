"""Bodies by their content types."""

from __future__ import annotations

from base64 import b64encode

import pytest

from rune.master.triggers.payload import BadPayload, plain_headers, plain_pairs, read_body


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("application/json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("application/vnd.github+json; charset=utf-8", b"3", 3),
        ("application/x-www-form-urlencoded", b"a=1&b=x+y&a=2&c=", {"a": ["1", "2"], "b": "x y", "c": ""}),
        ("text/plain", "grüß".encode(), "grüß"),
        ("text/plain; charset=latin-1", "grüß".encode("latin-1"), "grüß"),
        ("application/xml", b"<a/>", "<a/>"),
        ("", b"\0\xff", {"base64": "AP8=", "content_type": "application/octet-stream", "size": 2}),
        ("image/png", b"x", {"base64": "eA==", "content_type": "image/png", "size": 1}),
        ("application/json", b"", None),
        ("=<;rfc2231*0*", b"x", {"base64": "eA==", "content_type": "=<", "size": 1}),
        ("not a type\r\nx: y", b"x", None),
    ],
)
def test_a_body_is_read_by_its_type(kind: str, body: bytes, value: object) -> None:
    if kind.startswith("not"):
        assert read_body(body, kind)
    else:
        assert read_body(body, kind) == value


def test_a_form_in_parts() -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="who"\r\n\r\nAda\r\n'
        b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.bin"\r\n'
        b"Content-Type: application/x-thing\r\n\r\n\x00\r\n\xff\r\n--b--\r\n"
    )
    assert read_body(body, "multipart/form-data; boundary=b") == {
        "who": "Ada",
        "f": {
            "base64": b64encode(b"\x00\r\n\xff").decode(),
            "content_type": "application/x-thing",
            "size": 4,
            "filename": "a.bin",
        },
    }


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b'"\xff"'),
        ("application/json", b"[" * 100_000),
        ("application/x-www-form-urlencoded", b"%ff=1"),
        ("application/x-www-form-urlencoded", b"&".join(b"a=1" for _ in range(2000))),
        ("text/plain", b"\xff"),
        ("text/plain; charset=klingon", b"x"),
        ("text/plain; charset=undefined", b"x"),
        ('text/plain; charset="a\0b"', b"x"),
        # Half a character.
        ("text/plain; charset=utf-7", b"+2AA-"),
        ("text/plain; charset=unicode_escape", rb"\ud800"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"no parts"),
        ("multipart/form-data; =<;rfc2231*0*", b"x"),
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: form-data; =<;rfc2231*0*\r\n\r\nx\r\n--b--\r\n",
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nnameless\r\n--b--\r\n"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(BadPayload):
        read_body(body, kind)


def test_headers_and_pairs_become_plain() -> None:
    headers = [("Cookie", "secret"), ("X-A", "1"), ("x-a", "2"), ("Accept", "*/*")]
    assert plain_headers(headers, frozenset({"cookie"})) == {"x-a": "1, 2", "accept": "*/*"}
    assert plain_pairs([("a", 1), ("b", 2), ("a", 3), ("a", 4)]) == {"a": [1, 3, 4], "b": 2}
