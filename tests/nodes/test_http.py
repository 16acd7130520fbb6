"""The http node against a real server."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
import ssl
import zlib
from typing import Any

import pytest

from rune.core.errors import DefinitionError, NodeError
from rune.nodes._guard import Guard
from rune.nodes._http_client import HttpClient
from rune.nodes.http import Http
from tests.nodes.fakes import FakeContext, made, output
from tests.nodes.web import Answer, Seen, Web

JSON = ("Content-Type", "application/json")
TEXT = ("Content-Type", "text/plain; charset=utf-8")


@pytest.fixture
def context(client: HttpClient) -> FakeContext:
    return FakeContext(services={"http": client})


def signed(client: HttpClient, **credential: Any) -> FakeContext:
    return FakeContext(services={"http": client}, credential=credential)


async def failure(context: FakeContext, /, **parameters: Any) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await output(Http, context, **parameters)
    return caught.value


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


# --- redirects ---------------------------------------------------------------------------------------------


async def test_redirect_keeps_credentials_at_home(web: Web, client: HttpClient) -> None:
    web.answer("/old", Answer("302 Found", (("Location", "/new"),)))
    web.answer("/new", Answer(headers=(JSON,), body=b'"here"'))
    result = await output(Http, signed(client, token="t"), url=f"{web.url}/old")
    assert result["body"] == "here"
    assert web.seen[1].headers["authorization"] == "Bearer t"


async def test_redirect_elsewhere_drops_credentials(web: Web, elsewhere: Web, client: HttpClient) -> None:
    web.answer("/", Answer("307 Temporary Redirect", (("Location", f"{elsewhere.url}/"),)))
    elsewhere.answer("/", Answer("302 Found", (("Location", f"{web.url}/back"),)))
    web.answer("/back", Answer())
    headers = {
        "Cookie": "c=1",
        "Authorization": "Basic x",
        "Proxy-Authorization": "p",
        "X-Kept": "k",
        "Host": "h",
    }
    context = signed(client, header="X-Secret", value="s")
    await output(Http, context, url=f"{web.url}/", headers=headers)
    assert {"cookie", "authorization", "proxy-authorization", "x-secret"} <= web.seen[0].headers.keys()
    for seen in (elsewhere.seen[0], web.seen[1]):
        assert not {"cookie", "authorization", "proxy-authorization", "x-secret"} & seen.headers.keys()
        assert seen.headers["x-kept"] == "k"
        assert seen.headers["host"].startswith("127.0.0.1")


@pytest.mark.parametrize(
    ("status", "method", "followed_by"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (302, "PUT", "PUT"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
    ],
)
async def test_redirect_method(
    web: Web, context: FakeContext, status: int, method: str, followed_by: str
) -> None:
    web.answer("/", Answer(f"{status} Moved", (("Location", "to"),)))
    web.answer("/to", Answer())
    await output(Http, context, url=f"{web.url}/", method=method, body={"a": 1})
    seen = web.seen[1]
    assert seen.method == followed_by
    assert bool(seen.body) == (followed_by == method)
    assert ("content-type" in seen.headers) == (followed_by == method)


async def test_redirects_may_be_left_alone(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer("302 Found", (("Location", "/x"),)))
    result = await output(Http, context, url=f"{web.url}/", follow_redirects=False)
    assert (result["status"], result["headers"]["Location"]) == (302, "/x")


async def test_redirects_in_circles_end(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer("302 Found", (("Location", "/"),)))
    error = await failure(context, url=f"{web.url}/")
    assert error.code == "HTTP_REDIRECTS"
    assert len(web.seen) == 11


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://[broken"])
async def test_redirect_to_what_is_no_web_address(web: Web, context: FakeContext, location: str) -> None:
    web.answer("/", Answer("302 Found", (("Location", location),)))
    assert (await failure(context, url=f"{web.url}/")).code == "HTTP_URL"


# --- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "status", "raises"),
    [
        ("4xx,5xx", 404, True),
        ("4xx, 5xx", 500, True),
        ("4xx", 500, False),
        ("404", 404, True),
        ("404", 403, False),
        ("400,500-503", 502, True),
        ("400,500-503", 504, False),
        ("4xx or 5xx", 502, True),
        (404, 404, True),
        ("", 500, False),
    ],
)
async def test_raise_on_status(
    web: Web, context: FakeContext, pattern: Any, status: int, raises: bool
) -> None:
    web.answer("/", Answer(f"{status} Word", (TEXT,), b"why"))
    if not raises:
        assert (await output(Http, context, url=f"{web.url}/", raise_on_status=pattern))["status"] == status
        return
    error = await failure(context, url=f"{web.url}/", raise_on_status=pattern)
    assert error.code == "HTTP_STATUS"
    assert str(status) in error.message
    assert error.details == {"status": status, "body": "why"}


@pytest.mark.parametrize("pattern", ["many", "4x", "600-", "-5", "6xx"])
def test_wrong_raise_on_status_is_refused(pattern: str) -> None:
    with pytest.raises(DefinitionError, match="raise_on_status"):
        made(Http, FakeContext(), {"url": "http://x", "raise_on_status": pattern})


async def test_passing_status_is_tried_again_then_returned(web: Web, client: HttpClient) -> None:
    web.answer("/", Answer("503 Busy", (("Retry-After", "7"),)))
    first = FakeContext(services={"http": client}, last_attempt=False)
    error = await failure(first, url=f"{web.url}/", retry=1)
    assert error.retryable
    assert error.details is not None
    assert error.details["retry_after"] == 7
    last = FakeContext(services={"http": client}, last_attempt=True)
    assert (await output(Http, last, url=f"{web.url}/", retry=1))["status"] == 503


async def test_lasting_status_is_not_tried_again(web: Web, client: HttpClient) -> None:
    web.answer("/", Answer("404 Not Found"))
    first = FakeContext(services={"http": client}, last_attempt=False)
    assert (await output(Http, first, url=f"{web.url}/", retry=1))["status"] == 404
    error = await failure(first, url=f"{web.url}/", retry=1, raise_on_status="404")
    assert not error.retryable


async def test_timeout_is_for_the_whole_request(web: Web, context: FakeContext) -> None:
    async def never(seen: Seen) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    web.routes["/"] = never
    error = await failure(context, url=f"{web.url}/?key=s3cr3t", timeout=0.05)
    assert (error.code, error.retryable) == ("HTTP_TIMEOUT", True)
    assert "s3cr3t" not in error.message


async def test_cancelling_passes_through(web: Web, context: FakeContext) -> None:
    arrived = asyncio.Event()

    async def never(seen: Seen) -> Answer:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    web.routes["/"] = never
    task = asyncio.create_task(output(Http, context, url=f"{web.url}/"))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nobody_listens(context: FakeContext) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = await failure(context, url=f"http://127.0.0.1:{unused.getsockname()[1]}/")
    assert (error.code, error.retryable) == ("HTTP_CONNECTION", True)
    assert "see if the server runs" in error.message


async def test_server_hangs_up(web: Web, context: FakeContext) -> None:
    async def hang_up(seen: Seen) -> Answer:
        raise ConnectionError

    web.routes["/"] = hang_up
    error = await failure(context, url=f"{web.url}/")
    assert (error.code, error.retryable) == ("HTTP_CONNECTION", True)
    assert len(web.seen) == 1  # to try again is for the step's `retry`


async def test_unknown_host(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_such_host(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", no_such_host)
    error = await failure(context, url="http://no-such-host.invalid/")
    assert error.code == "HTTP_CONNECTION"
    assert "host name" in error.message


@pytest.mark.parametrize(
    "url",
    [
        "example.com/x",
        "ftp://example.com",
        "http://",
        "http://[::1",
        "http://a:99999999/",
        "http://a b/",
        "//x",
    ],
)
async def test_what_is_no_url(context: FakeContext, url: str) -> None:
    error = await failure(context, url=url)
    assert (error.code, error.retryable) == ("HTTP_URL", False)


async def test_secrets_in_urls_stay_out_of_messages(context: FakeContext) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await failure(context, url=f"http://me:pw0rd@127.0.0.1:{port}/a/b?token=s3cr3t#frag")
    assert f"http://127.0.0.1:{port}/a/b" in error.message
    assert "pw0rd" not in error.message
    assert "s3cr3t" not in error.message


@pytest.mark.parametrize("headers", [{"X": "a\r\nEvil: 1"}, {"X\r\nEvil": "1"}, {"": "x"}, {"a b": "x"}])
async def test_headers_cannot_be_injected(context: FakeContext, headers: dict[str, str]) -> None:
    assert (await failure(context, url="http://127.0.0.1/", headers=headers)).code == "HTTP_HEADER"


async def test_answer_over_the_limit(web: Web) -> None:
    client = HttpClient(max_bytes=1000)
    context = FakeContext(services={"http": client})
    web.answer("/", Answer(body=b"x" * 1000), Answer(body=b"x" * 1001))
    assert len((await output(Http, context, url=f"{web.url}/"))["body"]) == 1000
    assert (await failure(context, url=f"{web.url}/")).code == "HTTP_TOO_LARGE"
    await client.close()


async def test_decompression_bomb(web: Web) -> None:
    client = HttpClient(max_bytes=100_000)
    bomb = gzip.compress(b"\0" * 50_000_000)
    web.answer("/", Answer(headers=(("Content-Encoding", "gzip"),), body=bomb))
    error = await failure(FakeContext(services={"http": client}), url=f"{web.url}/")
    assert error.code == "HTTP_TOO_LARGE"
    await client.close()


async def test_decompression_bomb_inside_another(web: Web) -> None:
    client = HttpClient(max_bytes=100_000)
    silent = zlib.compressobj(wbits=-15)
    nothing = silent.compress(b"") + b"\0\0\0\xff\xff" * 4_000_000  # empty blocks: much to do, no result
    web.answer("/", Answer(headers=(("Content-Encoding", "deflate, gzip"),), body=gzip.compress(nothing)))
    error = await failure(FakeContext(services={"http": client}), url=f"{web.url}/")
    assert error.code == "HTTP_TOO_LARGE"
    codings = ", ".join(["gzip"] * 2000)
    web.answer("/", Answer(headers=(("Content-Encoding", codings),), body=b"x"))
    assert (await failure(FakeContext(services={"http": client}), url=f"{web.url}/")).code == "HTTP_ENCODING"
    await client.close()


async def test_broken_compression(web: Web, context: FakeContext) -> None:
    web.answer("/", Answer(headers=(("Content-Encoding", "gzip"),), body=b"no gzip"))
    assert (await failure(context, url=f"{web.url}/")).code == "HTTP_ENCODING"


# --- https and the guard -----------------------------------------------------------------------------------


async def test_unknown_authority_is_refused_unless_told(
    server_tls: ssl.SSLContext, context: FakeContext
) -> None:
    async with Web().running(server_tls) as web:
        web.answer("/", Answer(headers=(JSON,), body=b"1"))
        error = await failure(context, url=f"{web.url}/")
        assert (error.code, error.retryable) == ("HTTP_TLS", False)
        assert "`ignore_ssl`" in error.message
        assert (await output(Http, context, url=f"{web.url}/", ignore_ssl=True))["body"] == 1
        assert (await failure(context, url=f"{web.url}/")).code == "HTTP_TLS"


@pytest.mark.usefixtures("trusted_authority")
async def test_known_authority_is_trusted(server_tls: ssl.SSLContext, context: FakeContext) -> None:
    async with Web().running(server_tls) as web:
        web.answer("/", Answer(headers=(JSON,), body=b"1"))
        assert (await output(Http, context, url=f"{web.url}/"))["body"] == 1


async def test_guard_sees_the_address_of_every_hop(web: Web, elsewhere: Web) -> None:
    home, away = (int(server.url.rpartition(":")[2]) for server in (web, elsewhere))
    met: list[tuple[str, int]] = []

    class Watch(Guard):
        def __call__(self, host: str, address: str, port: int) -> None:
            met.append((address, port))
            super().__call__(host, address, port)

    client = HttpClient(guard=Watch([f"127.0.0.1:{home}"]))
    web.answer("/", Answer("302 Found", (("Location", f"{elsewhere.url}/"),)))
    elsewhere.answer("/", Answer())
    error = await failure(FakeContext(services={"http": client}), url=f"{web.url}/")
    assert error.code == "HTTP_FORBIDDEN"
    assert met == [("127.0.0.1", home), ("127.0.0.1", away)]
    assert elsewhere.seen == []
    await client.close()


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name mean these addresses; gives the names that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


async def test_guard_sees_what_a_name_means(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving_to(monkeypatch, "127.0.0.1", "127.0.0.1")
    client = HttpClient(guard=Guard())
    url = web.url.replace("127.0.0.1", "friendly.invalid")
    assert (await failure(FakeContext(services={"http": client}), url=url)).code == "HTTP_FORBIDDEN"
    assert asked == ["friendly.invalid"]
    assert web.connections == 0
    await client.close()


async def test_guard_leaves_the_other_addresses(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[str] = []

    class Watch(Guard):
        def __call__(self, host: str, address: str, port: int) -> None:
            met.append(address)
            super().__call__(host, address, port)

    web.answer("/", Answer())
    asked = resolving_to(monkeypatch, "10.0.0.1", "127.0.0.1")
    client = HttpClient(guard=Watch(["127.0.0.0/8"]))
    url = web.url.replace("127.0.0.1", "friendly.invalid")
    assert (await output(Http, FakeContext(services={"http": client}), url=f"{url}/"))["status"] == 200
    assert met == ["10.0.0.1", "127.0.0.1"]
    assert asked == ["friendly.invalid"]  # not once more for the connection
    await client.close()


# --- proxies -----------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(web: Web, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", web.url.replace("://", "://me:pw0rd@"))
    return monkeypatch


@pytest.mark.usefixtures("proxy")
async def test_environment_names_the_proxy(web: Web, context: FakeContext) -> None:
    web.answer("http://far.invalid/x", Answer(headers=(JSON,), body=b"1"))
    assert (await output(Http, context, url="http://far.invalid/x"))["body"] == 1
    assert base64.b64decode(web.seen[0].headers["proxy-authorization"].split()[1]) == b"me:pw0rd"


@pytest.mark.parametrize("exceptions", ["*", "10.0.0.1, 127.0.0.1", "127.0.0.0/8"])
async def test_no_proxy(
    web: Web, elsewhere: Web, context: FakeContext, proxy: pytest.MonkeyPatch, exceptions: str
) -> None:
    proxy.setenv("NO_PROXY", exceptions)
    elsewhere.answer("/", Answer())
    await output(Http, context, url=f"{elsewhere.url}/")
    assert web.seen == []


async def test_proxy_of_another_kind(context: FakeContext, proxy: pytest.MonkeyPatch) -> None:
    proxy.setenv("http_proxy", "socks5://me:pw0rd@127.0.0.1:1")
    error = await failure(context, url="http://far.invalid/")
    assert error.code == "HTTP_PROXY"
    assert "pw0rd" not in error.message
