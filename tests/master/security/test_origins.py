"""Where a request comes from, as browsers tell it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from rune.master.security.origins import Origins, is_loopback


def request(method: str = "POST", **headers: str) -> HTTPConnection:
    raw = [
        (name.replace("_", "-").lower().encode(), text.encode("latin-1")) for name, text in headers.items()
    ]
    kind = {"type": "websocket"} if method == "WS" else {"type": "http", "method": method}
    return HTTPConnection({**kind, "headers": raw})


@pytest.mark.parametrize(
    ("host", "origin", "same"),
    [
        ("rune.example:8484", "http://rune.example:8484", True),
        ("rune.example", "http://rune.example", True),
        ("rune.example", "https://rune.example", True),  # a proxy speaks https for us
        ("RUNE.example", "https://rune.EXAMPLE:443", True),
        ("[::1]:8484", "http://[::1]:8484", True),
        ("inner:8484", "https://public.example", True),  # RUNE_PUBLIC_URL
        ("rune.example:8484", "http://rune.example", False),
        ("rune.example", "http://evil.example", False),
        ("rune.example", "http://rune.example.evil.example", False),
        ("rune.example", "http://evil.example/rune.example", False),
        ("rune.example", "null", False),
        ("rune.example", "", False),
        ("rune.example", "http://[::1", False),
        ("", "http://", False),
        ("", "null", False),
        ("rune.example", "http://rune.example:x", False),
    ],
)
def test_an_origin_is_ours_or_not(host: str, origin: str, same: bool) -> None:
    origins = Origins(public_url="https://public.example/")
    for method in ("GET", "POST", "WS"):
        assert origins.is_same(request(method, host=host, origin=origin), strict=True) is same


@pytest.mark.parametrize("method", ["GET", "POST", "WS"])
def test_browsers_say_it_in_one_word(method: str) -> None:
    for site, same in (("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False)):
        assert Origins().is_same(request(method, host="x", sec_fetch_site=site), strict=True) is same


def test_without_a_word_a_change_needs_a_header_that_pages_cannot_send() -> None:
    for method, plain in (("GET", True), ("POST", False), ("DELETE", False), ("WS", False)):
        assert Origins().is_same(request(method, host="x"), strict=True) is plain
        assert Origins().is_same(request(method, host="x"), strict=False)
        assert Origins().is_same(request(method, host="x", x_rune_request="1"), strict=True)


def test_hosts_of_ours_are_known() -> None:
    origins = Origins(["inner"], "https://public.example")
    for host in ("localhost", "127.9.9.9:1", "[::1]", "inner:8484", "PUBLIC.example"):
        assert origins.is_ours(request(host=host)), host
    for host in (
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        "0.0.0.0",
        "localhost:x",
        "a@localhost",
    ):
        assert not origins.is_ours(request(host=host)), host
    assert not Origins().is_ours(request())


@given(
    st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"])),
    st.text(st.sampled_from("a:/[].@#?1")),
)
def test_whatever_is_sent_gets_an_answer(noise: str, address: str) -> None:
    for text in (noise, address, f"http://{address}"):
        found = request(host=text, origin=text)
        Origins().is_ours(found)
        Origins().is_same(found, strict=True)
        is_loopback(text)
