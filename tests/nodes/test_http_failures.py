"""The http node against a real server: what can go wrong."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from typing import Any

import pytest

from rune.core.errors import DefinitionError
from rune.nodes._http_client import HttpClient
from rune.nodes.http import Http
from tests.nodes.fakes import FakeContext, made, output
from tests.nodes.requesting import TEXT, failure
from tests.nodes.web import Answer, Seen, Web


@pytest.fixture
def context(client: HttpClient) -> FakeContext:
    return FakeContext(services={"http": client})


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
