"""The pooled HTTP client that all http steps of a worker share; imported when the first of them runs."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from rune import __version__
from rune.core.errors import NodeError

__all__ = ["HttpClient", "Request", "Response"]

MAX_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 10
SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(rb"[\w.-]+|[0-9A-Fa-f:.]+")

Guard = Callable[[str, int], None]
"""Refuses an address, by raising, before anything is sent to it."""


class Request(Struct, frozen=True, kw_only=True):
    """One request. Header names are in lower case; `secret` names those that stay with the first origin."""

    method: str
    url: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = {}
    body: bytes | None = None
    secret: frozenset[str] = frozenset()
    verify: bool = True
    follow: bool = True


class Response(Struct, frozen=True):
    """One answer, read to its end and decompressed."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header, by its name in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class HttpClient:
    """Sends requests over shared connections; follows redirects and keeps secrets to their origin."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        connections: int = 100,
        guard: Guard | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._connections = connections
        self._guard = guard
        self._tls = tls
        self._pools: dict[str, httpx2.AsyncClient] = {}

    async def fetch(self, request: Request, timeout: float) -> Response:
        """Send a request and read the answer, in `timeout` seconds altogether."""
        try:
            async with asyncio.timeout(timeout):
                return await self._follow(request)
        except TimeoutError:
            raise NodeError(
                f"{_title(request)} took longer than {timeout:g} s; raise `timeout`, or see why",
                "HTTP_TIMEOUT",
                {"timeout": timeout},
                retryable=True,
            ) from None

    async def close(self) -> None:
        """Close all connections."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.aclose()

    async def _follow(self, request: Request) -> Response:
        url = _parsed(request.url, request)
        if request.query:
            url = url.copy_merge_params(list(request.query))
        url, request = _without_user(url, request)
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(url, request)
            location = response.header("location")
            if not request.follow or response.status not in _REDIRECTS or not location:
                return response
            url, request = _redirected(url, request, response.status, location)
        raise NodeError(
            f"{_title(request)} was redirected more than {MAX_REDIRECTS} times, perhaps in circles",
            "HTTP_REDIRECTS",
        )

    async def _send(self, url: httpx2.URL, request: Request) -> Response:
        pool = self._pool(url.scheme, request.verify)
        headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
        extensions = {"trace": self._trace} if self._guard else None
        try:
            message = pool.build_request(
                request.method, url, headers=headers, content=request.body, extensions=extensions
            )
            answer = await pool.send(message, stream=True)
            try:
                body = await self._read(answer, request)
            finally:
                await answer.aclose()
        except httpx2.TransportError as error:
            raise _failure(error, request) from error
        except httpx2.DecodingError as error:
            raise NodeError(
                f"the answer to {_title(request)} is not what its Content-Encoding says: {error}",
                "HTTP_ENCODING",
            ) from error
        fields = tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in answer.headers.raw)
        return Response(answer.status_code, answer.reason_phrase, fields, body)

    async def _read(self, answer: httpx2.Response, request: Request) -> bytes:
        """The body; decompression comes in small pieces, so that the limit holds for it too."""
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > self._max_bytes:
                raise NodeError(
                    f"the answer to {_title(request)} is larger than {self._max_bytes} bytes; "
                    "ask for less at a time, in pages",
                    "HTTP_TOO_LARGE",
                    {"limit": self._max_bytes},
                )
        return bytes(body)

    def _pool(self, scheme: str, verify: bool) -> httpx2.AsyncClient:
        """The connections of one kind; the system's certificates are read for the first https request."""
        kind = "plain" if scheme == "http" else "verified" if verify else "unverified"
        pool = self._pools.get(kind)
        if pool is None:
            pool = self._pools[kind] = self._open(kind == "verified")
        return pool

    def _open(self, verify: bool) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            verify=(self._tls or True) if verify else False,
            timeout=None,
            limits=httpx2.Limits(
                max_connections=self._connections,
                max_keepalive_connections=self._connections,
                keepalive_expiry=15,
            ),
            headers={"User-Agent": f"rune/{__version__}"},
            # One step's cookies must never reach another's request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        """Show the guard the address that a new connection really goes to, before it carries anything."""
        if self._guard is None or event != "connection.connect_tcp.complete":
            return
        stream = info["return_value"]
        address = stream.get_extra_info("server_addr")
        try:
            self._guard(address[0], address[1])
        except BaseException:
            await stream.aclose()
            raise


def _parsed(text: str | httpx2.URL, request: Request) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, TypeError, ValueError) as error:
        raise NodeError(f"{_title(request)}: not a URL: {error}", "HTTP_URL") from None
    if url.scheme not in _PORTS or not _HOST.fullmatch(url.raw_host) or (url.port or 0) > 65535:
        raise NodeError(
            f"{_title(request)}: a URL has to begin with http:// or https:// and name a host", "HTTP_URL"
        )
    return url


def _without_user(url: httpx2.URL, request: Request) -> tuple[httpx2.URL, Request]:
    """Turn `user:password@` in a URL into a header that a redirect to elsewhere drops."""
    if not url.userinfo:
        return url, request
    name, _, password = url.userinfo.partition(b":")
    basic = b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode()
    headers = {"authorization": f"Basic {basic}", **request.headers}
    return url.copy_with(userinfo=b""), replace(request, headers=headers)


def _redirected(url: httpx2.URL, request: Request, status: int, location: str) -> tuple[httpx2.URL, Request]:
    """The request that a redirect asks for: by GET where the method changes, without secrets elsewhere."""
    target = _parsed(url.join(_parsed_reference(location, request)), request).copy_with(userinfo=b"")
    headers, method, body = request.headers, request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = {
            k: v for k, v in headers.items() if not k.startswith("content-") and k != "idempotency-key"
        }
    if _origin(target) != _origin(url):
        dropped = SECRET_HEADERS | request.secret | {"host"}
        headers = {k: v for k, v in headers.items() if k not in dropped}
    return target, replace(request, url=str(target), method=method, body=body, headers=headers)


def _parsed_reference(location: str, request: Request) -> httpx2.URL:
    try:
        return httpx2.URL(location)
    except httpx2.InvalidURL as error:
        raise NodeError(f"{_title(request)} was redirected to what is no URL: {error}", "HTTP_URL") from None


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or _PORTS[url.scheme]


def _title(request: Request) -> str:
    """A request as messages name it: without what may hold a secret, its user, query and fragment."""
    address = request.url.partition("?")[0].partition("#")[0]
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{request.method} {scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _failure(error: httpx2.TransportError, request: Request) -> NodeError:
    """A failure of the transport, as users see it."""
    causes = list(_causes(error))
    title = _title(request)
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return NodeError(f"{title} cannot be sent: {error}", "HTTP_REQUEST")
    if tls := next((c for c in causes if isinstance(c, ssl.SSLError)), None):
        reason = getattr(tls, "verify_message", "") or tls.reason or str(tls)
        hint = "correct the server's certificate, or set `ignore_ssl` where that is safe"
        return NodeError(f"{title}: no safe connection: {reason}; {hint}", "HTTP_TLS")
    if any(isinstance(c, socket.gaierror) for c in causes):
        message = f"{title}: the host name cannot be resolved; see if it is spelled right"
    else:
        message = f"{title}: {_reason(causes)}; see if the server runs and can be reached from here"
    return NodeError(message, "HTTP_CONNECTION", retryable=True)


def _reason(causes: list[BaseException]) -> str:
    """The most exact of several messages: what the system said, else what the client said."""
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return str(causes[0]) or type(causes[0]).__name__


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        if isinstance(error, BaseExceptionGroup):
            found.extend(error.exceptions)
        error = error.__cause__ or error.__context__
    return found
