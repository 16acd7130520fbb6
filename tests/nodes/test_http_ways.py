"""The http node against a real server: redirects, TLS, the guard and proxies on the way there."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from typing import Any

import pytest

from rune.nodes._guard import Guard
from rune.nodes._http_client import HttpClient
from rune.nodes.http import Http
from tests.nodes.fakes import FakeContext, output
from tests.nodes.requesting import JSON, failure, signed
from tests.nodes.web import Answer, Web


@pytest.fixture
def context(client: HttpClient) -> FakeContext:
    return FakeContext(services={"http": client})


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
