"""The http node against a real server: what is sent, and what is made of the answer."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from typing import Any

import pytest

from rune.nodes._http_client import HttpClient
from rune.nodes.http import Http
from tests.nodes.fakes import FakeContext, made, output
from tests.nodes.requesting import JSON, failure, signed
from tests.nodes.web import Answer, Web


@pytest.fixture
def context(client: HttpClient) -> FakeContext:
    return FakeContext(services={"http": client})


# --- the answer --------------------------------------------------------------------------------------------


async def test_json_is_parsed(web: Web, context: FakeContext) -> None:
    web.answer("/users", Answer(headers=(JSON, ("x-trace", "7")), body=b'{"users": [1, 2]}'))
    result = await output(Http, context, url=f"{web.url}/users")
    assert result["status"] == 200
    assert result["status_text"] == "OK"
    assert result["body"] == {"users": [1, 2]}
    assert result["headers"]["Content-Type"] == "application/json"
    assert result["headers"]["X-Trace"] == "7"
    assert isinstance(result["duration_ms"], int)
    assert set(result) == {"status", "status_text", "body", "headers", "duration_ms"}


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/problem+json", b'{"title": "x"}', {"title": "x"}),
        ("application/json", b"null", None),
        ("application/json", b"{broken", "{broken"),
        ("text/plain", b'{"stays": "text"}', '{"stays": "text"}'),
        ("text/html; charset=latin-1", "é".encode("latin-1"), "é"),
        ("text/plain; charset=no-such", b"text", "text"),
        ("application/octet-stream", b"readable", "readable"),
        ("text/plain", b"", ""),
    ],
)
async def test_body_by_type(web: Web, context: FakeContext, kind: str, body: bytes, expected: Any) -> None:
    web.answer("/", Answer(headers=(("Content-Type", kind),), body=body))
    result = await output(Http, context, url=f"{web.url}/")
    assert result["body"] == expected
    assert "body_encoding" not in result


async def test_binary_comes_in_base64(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer(headers=(("Content-Type", "image/png"),), body=b"\x89PNG\0\xff"))
    result = await output(Http, context, url=f"{web.url}/")
    assert base64.b64decode(result["body"]) == b"\x89PNG\0\xff"
    assert result["body_encoding"] == "base64"


async def test_repeated_headers_are_joined_and_cookies_listed(web: Web, context: FakeContext) -> None:
    headers = (("Vary", "a"), ("vary", "b"), ("Set-Cookie", "s=1"), ("Set-Cookie", "t=2"))
    web.answer("/", Answer(headers=headers))
    result = await output(Http, context, url=f"{web.url}/")
    assert result["headers"]["Vary"] == "a, b"
    assert result["headers"]["Set-Cookie"] == ["s=1", "t=2"]


async def test_compressed_answers_are_read(web: Web, context: FakeContext) -> None:
    body = gzip.compress(b'{"a": 1}')
    web.answer("/", Answer(headers=(JSON, ("Content-Encoding", "gzip")), body=body))
    assert (await output(Http, context, url=f"{web.url}/"))["body"] == {"a": 1}


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("deflate", zlib.compress(b"[1]")),
        ("deflate", zlib.compress(b"[1]")[2:-4]),  # without the envelope, as some servers send it
        ("deflate, gzip", gzip.compress(zlib.compress(b"[1]"))),
        ("identity", b"[1]"),
        ("br", b"[1]"),  # unknown, so left alone
    ],
    ids=["deflate", "bare", "two", "identity", "unknown"],
)
async def test_compressions(web: Web, context: FakeContext, coding: str, body: bytes) -> None:
    web.answer("/", Answer(headers=(JSON, ("Content-Encoding", coding)), body=body))
    assert (await output(Http, context, url=f"{web.url}/"))["body"] == [1]


# --- the request -------------------------------------------------------------------------------------------


async def test_json_body_and_query(web: Web, context: FakeContext) -> None:
    web.answer("/items", Answer())
    await output(
        Http,
        context,
        method="post",
        url=f"{web.url}/items?fixed=1",
        query={"q": "a b", "tag": ["x", "y"], "n": 5, "flag": True, "none": None},
        headers={"X-Number": 7, "X-None": None},
        body={"name": "Ada"},
    )
    seen = web.seen[0]
    assert seen.method == "POST"
    assert seen.target == "/items?fixed=1&q=a+b&tag=x&tag=y&n=5&flag=true"
    assert json.loads(seen.body) == {"name": "Ada"}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-number"] == "7"
    assert "x-none" not in seen.headers
    assert seen.headers["user-agent"].startswith("rune/")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("plain", "text/plain; charset=utf-8"),
        ('{"a": 1}', "application/json"),
        ("[broken", "text/plain; charset=utf-8"),
    ],
)
async def test_string_body_goes_raw(web: Web, context: FakeContext, body: str, kind: str) -> None:
    web.answer("/", Answer())
    await output(Http, context, method="PUT", url=f"{web.url}/", body=body)
    assert web.seen[0].body == body.encode()
    assert web.seen[0].headers["content-type"] == kind


async def test_large_body(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    body = "x" * 3_000_000
    await output(Http, context, method="POST", url=f"{web.url}/", body=body)
    assert web.seen[0].body == body.encode()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("/a%2Fb%7E?key=%2F%7e+%20", "/a%2Fb%7E?key=%2F%7e+%20"),  # signatures are over the very text
        ("/a b/é?ü=ß x", "/a%20b/%C3%A9?%C3%BC=%C3%9F%20x"),
        ("/a/../b/./c/..?x", "/b/?x"),
        ("", "/"),
        ("?q=1#fragment", "/?q=1"),
    ],
)
async def test_url_is_sent_as_given(web: Web, context: FakeContext, given: str, sent: str) -> None:
    web.answer(sent.partition("?")[0], Answer())
    await output(Http, context, url=web.url + given)
    assert web.seen[0].target == sent


async def test_query_takes_the_place_of_the_urls(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    await output(Http, context, url=f"{web.url}/?a=1&b=2&a=3", query={"a": [8, 9]})
    assert web.seen[0].target == "/?a=8&a=9&b=2"


async def test_framing_is_not_for_headers_to_say(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    headers = {"Content-Length": 99, "Transfer-Encoding": "chunked", "Expect": "100-continue"}
    await output(Http, context, method="POST", url=f"{web.url}/", headers=headers, body="abc")
    assert web.seen[0].body == b"abc"
    assert not {"transfer-encoding", "expect"} & web.seen[0].headers.keys()


async def test_get_sends_no_empty_body(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    await output(Http, context, url=f"{web.url}/", body={})
    assert "content-type" not in web.seen[0].headers
    assert "content-length" not in web.seen[0].headers


async def test_idempotency_key_is_the_step(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE"):
        await output(Http, context, method=method, url=f"{web.url}/")
    await output(Http, context, method="POST", url=f"{web.url}/", headers={"idempotency-KEY": "mine"})
    keys = [seen.headers.get("idempotency-key") for seen in web.seen]
    assert keys == [None, None, None, "step-1", "step-1", "mine"]


async def test_numbers_may_be_strings(context: FakeContext) -> None:
    node = made(
        Http,
        context,
        {"url": "http://x", "retry": "2", "retry_delay": "1.5", "timeout": "5", "ignore_ssl": "true"},
    )
    assert isinstance(node, Http)
    assert (node.retry, node.retry_delay, node.timeout, node.ignore_ssl) == (2, 1.5, 5, True)
    policy = node.retry_policy()
    assert policy is not None
    assert (policy.attempts, policy.delay) == (3, 1.5)
    assert made(Http, context, {"url": "http://x"}).retry_policy() is None


async def test_connections_are_shared(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    for _ in range(5):
        await output(Http, context, url=f"{web.url}/")
    assert {seen.connection for seen in web.seen} == {1}


async def test_cookies_of_one_step_do_not_reach_another(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer(headers=(("Set-Cookie", "session=secret; Path=/"),)))
    await output(Http, context, url=f"{web.url}/")
    await output(Http, context, url=f"{web.url}/")
    assert "cookie" not in web.seen[1].headers


# --- credentials -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credential", "header", "value"),
    [
        ({"token": "t0k"}, "authorization", "Bearer t0k"),
        (
            {"username": "u", "password": "pä"},
            "authorization",
            f"Basic {base64.b64encode('u:pä'.encode()).decode()}",
        ),
        ({"header": "X-Sign", "value": "v"}, "x-sign", "v"),
        ({"type": "header", "field": "X-Sign", "value": "v"}, "x-sign", "v"),
        ({"headers": {"X-One": "1"}}, "x-one", "1"),
        ({"api_key": "k"}, "x-api-key", "k"),
    ],
)
async def test_credentials_sign(
    web: Web, client: HttpClient, credential: dict[str, Any], header: str, value: str
) -> None:
    web.answer("/", Answer())
    await output(Http, signed(client, **credential), url=f"{web.url}/")
    assert web.seen[0].headers[header] == value


async def test_header_given_by_hand_comes_first(web: Web, client: HttpClient) -> None:
    web.answer("/", Answer())
    await output(Http, signed(client, token="t"), url=f"{web.url}/", headers={"Authorization": "Mine"})
    assert web.seen[0].headers["authorization"] == "Mine"


async def test_unknown_credential_names_the_known_ones(client: HttpClient) -> None:
    error = await failure(signed(client, colour="s3cr3t"), url="http://127.0.0.1/")
    assert error.code == "HTTP_CREDENTIAL"
    assert "`token`" in error.message
    assert "s3cr3t" not in error.message


async def test_user_in_url_is_basic_authorization(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer())
    await output(Http, context, url=web.url.replace("://", "://me:p%40ss@") + "/")
    assert base64.b64decode(web.seen[0].headers["authorization"].split()[1]) == b"me:p@ss"
