"""The pooled HTTP client that all http steps of a worker share; imported when the first of them runs."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import parse_qs, quote, unquote_to_bytes, urlencode, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from rune import __version__
from rune.core.errors import NodeError

__all__ = ["HttpClient", "Request", "Response"]

MAX_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 10
SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"})
_FRAMING = frozenset({"content-length", "expect", "transfer-encoding"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII)
_NUMERIC = re.compile(r"[\d.]+|.*:.*", re.ASCII)
_UNSAFE_IN_PATH = re.compile(r'[^!-~]|["#<>?`{}]')
_UNSAFE_IN_QUERY = re.compile(r'[^!-~]|["#<>]')
_CODINGS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
_MAX_CODINGS = 4
_PIECE = 256 * 1024
_LARGE_BODY = 1024 * 1024
# Where systems keep their certificates, for a Python whose OpenSSL was built to look elsewhere.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

Guard = Callable[[str, int], None]
"""Refuses an address, by raising, before anything is sent to it."""

_refusals: ContextVar[list[Exception]] = ContextVar("_refusals")


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
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str] = {}

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
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _follow(self, request: Request) -> Response:
        url = _parsed(request.url, request)
        if request.query:
            url = url.with_query(request.query)
        request = _with_user(url, request)
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

    async def _send(self, url: _Url, request: Request) -> Response:
        session = self._session or self._open()
        refusals: list[Exception] = []
        _refusals.set(refusals)
        body = request.body
        try:
            async with session.request(
                request.method,
                URL(str(url), encoded=True),
                # How the message is framed is the client's to say.
                headers={k: v for k, v in request.headers.items() if k not in _FRAMING},
                data=BytesIO(body) if body and len(body) > _LARGE_BODY else body,
                allow_redirects=False,
                proxy=self._proxy(url, request) if self._proxies else None,
                ssl=self._context(request.verify) if url.scheme == "https" else True,
            ) as answer:
                content = await self._read(answer, request)
        except (aiohttp.ClientError, ValueError) as error:
            if refusals and isinstance(error, aiohttp.ClientConnectorError):
                raise refusals[0] from None
            raise _failure(error, request) from error
        fields = tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in answer.raw_headers)
        reason = (answer.reason or "").encode("ascii", "ignore").decode()
        return Response(answer.status, reason, fields, content)

    async def _read(self, answer: aiohttp.ClientResponse, request: Request) -> bytes:
        """The body; the limit holds for what comes in, and for every piece of what it unpacks to."""
        body = bytearray()
        received = 0
        try:
            layers = _layers(answer.headers.getall("Content-Encoding", ()), self._max_bytes)
            async for data in answer.content.iter_any():
                received += len(data)
                for piece in _unpacked(data, layers):
                    body += piece
                    if len(body) > self._max_bytes:
                        raise _TooLarge
                if received > self._max_bytes:
                    raise _TooLarge
        except _TooLarge:
            raise NodeError(
                f"the answer to {_title(request)} is larger than {self._max_bytes} bytes; "
                "ask for less at a time, in pages",
                "HTTP_TOO_LARGE",
                {"limit": self._max_bytes},
            ) from None
        except zlib.error as error:
            raise NodeError(
                f"the answer to {_title(request)} is not what its Content-Encoding says: {error}",
                "HTTP_ENCODING",
            ) from error
        return bytes(body)

    def _open(self) -> aiohttp.ClientSession:
        self._proxies = getproxies()
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            keepalive_timeout=15,
            resolver=aiohttp.ThreadedResolver(),
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            # One step's cookies must never reach another's request.
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"rune/{__version__}", "Accept-Encoding": "gzip, deflate"},
            skip_auto_headers=["Content-Type"],
            timeout=aiohttp.ClientTimeout(total=None),
            # The client's own unpacking knows no limit.
            auto_decompress=False,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            max_headers=512,
            middlewares=(_once,),
        )
        return self._session

    def _socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """A socket for one address, after the guard has seen the very address that it will connect to."""
        family, kind, protocol, _, address = info
        if self._guard is not None:
            try:
                self._guard(str(address[0]), int(address[1]))
            except Exception as error:
                _refusals.get().append(error)
                raise PermissionError(errno.EACCES, "refused") from error
        return socket.socket(family, kind, protocol)

    def _context(self, verify: bool) -> ssl.SSLContext | bool:
        """Whom to trust; the system's certificates are read for the first https request."""
        if not verify:
            return False
        if self._tls is None:
            self._tls = _system_tls()
        return self._tls

    def _proxy(self, url: _Url, request: Request) -> URL | None:
        """The proxy that the environment names for an address."""
        text = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not text or _goes_direct(url, self._proxies.get("no", "")):
            return None
        try:
            proxy = URL(text if "://" in text else f"http://{text}")
        except ValueError:
            proxy = URL()
        if proxy.scheme not in _PORTS or not proxy.host:
            raise NodeError(
                f"{_title(request)} cannot be sent: the proxy that the environment names for {url.scheme} "
                "is not an http:// or https:// address; correct it, or name the host in NO_PROXY",
                "HTTP_PROXY",
            )
        return proxy


class _TooLarge(Exception):
    """More came than the limit allows."""


class _Url(Struct, frozen=True):
    """An address whose parts are fit to send; `%xx` stays as it was given, since signatures count on it."""

    scheme: str
    host: str
    port: int
    path: str
    query: str
    user: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{host}{port}{self.path}{query}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    def with_query(self, pairs: Sequence[tuple[str, str]]) -> _Url:
        """This address with further parameters, which come in place of those of the same name."""
        given: dict[str, list[str]] = {}
        for name, value in pairs:
            given.setdefault(name, []).append(value)
        merged = {**parse_qs(self.query, keep_blank_values=True), **given}
        return replace(self, query=urlencode(merged, doseq=True))


def _parsed(text: str, request: Request, base: str = "") -> _Url:
    """The address that a text means, seen from `base`."""
    try:
        if _CONTROL.search(text):
            raise ValueError("it has control characters")
        parts = urlsplit(urljoin(base, text))
        host = _encoded_host(parts.hostname or "")
        port = parts.port
        path = _UNSAFE_IN_PATH.sub(_escaped, _without_dots(parts.path)) or "/"
        query = _UNSAFE_IN_QUERY.sub(_escaped, parts.query)
    except ValueError as error:
        raise NodeError(f"{_title(request)}: not a URL: {error}", "HTTP_URL") from None
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host):
        raise NodeError(
            f"{_title(request)}: a URL has to begin with http:// or https:// and name a host", "HTTP_URL"
        )
    user = parts.netloc.rpartition("@")[0]
    return _Url(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, path, query, user)


@lru_cache(maxsize=256)
def _encoded_host(host: str) -> str:
    if not host.isascii():
        return URL.build(scheme="http", host=host).raw_host or ""
    if _NUMERIC.fullmatch(host):
        ip_address(host)
    else:
        host.encode("idna")  # refuses what no resolver would take
    return host


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path
    segments = path.split("/")
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            kept = kept[:1] + kept[1:-1]
        elif segment != ".":
            kept.append(segment)
    return "/".join(kept if segments[-1] not in (".", "..") else [*kept, ""])


def _escaped(found: re.Match[str]) -> str:
    return quote(found[0], safe="")


def _with_user(url: _Url, request: Request) -> Request:
    """Turn `user:password@` in a URL into a header that a redirect to elsewhere drops."""
    if not url.user:
        return request
    name, _, password = url.user.partition(":")
    basic = b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode()
    return replace(request, headers={"authorization": f"Basic {basic}", **request.headers})


def _redirected(url: _Url, request: Request, status: int, location: str) -> tuple[_Url, Request]:
    """The request that a redirect asks for: by GET where the method changes, without secrets elsewhere."""
    target = _parsed(location, request, str(url))
    headers, method, body = request.headers, request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = {
            k: v for k, v in headers.items() if not k.startswith("content-") and k != "idempotency-key"
        }
    if target.origin != url.origin:
        dropped = SECRET_HEADERS | request.secret | {"host"}
        headers = {k: v for k, v in headers.items() if k not in dropped}
    return target, replace(request, url=str(target), method=method, body=body, headers=headers)


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep the client from sending a request again by itself: that is for the step's `retry` to say."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError from error


def _system_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    told = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    if not told and not context.cert_store_stats()["x509_ca"]:
        for file in filter(os.path.isfile, _AUTHORITIES):
            context.load_verify_locations(file)
            break
    context.set_alpn_protocols(["http/1.1"])
    return context


def _goes_direct(url: _Url, exceptions: str) -> bool:
    """Whether NO_PROXY names an address: by name, by the end of its name, or by its network."""
    if proxy_bypass(f"{url.host}:{url.port}"):
        return True
    if not _NUMERIC.fullmatch(url.host):
        return False
    address = ip_address(url.host)
    return any(address in network for network in _networks(exceptions))


@lru_cache(maxsize=8)
def _networks(exceptions: str) -> tuple[IPv4Network | IPv6Network, ...]:
    found = []
    for entry in exceptions.split(","):
        with suppress(ValueError):
            found.append(ip_network(entry.strip(), strict=False))
    return tuple(found)


class _Inflater:
    """Undoes one compression, in small pieces and up to a limit."""

    def __init__(self, coding: str, limit: int) -> None:
        self._zlib = zlib.decompressobj(_CODINGS[coding])
        # Some servers leave out the envelope that the standard asks for.
        self._may_be_bare = coding == "deflate"
        self._left = limit

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._zlib.eof:
            return
        while piece := self._inflated(data):
            self._left -= len(piece)
            if self._left < 0:
                raise _TooLarge
            yield piece
            data = self._zlib.unconsumed_tail

    def _inflated(self, data: bytes) -> bytes:
        try:
            piece = self._zlib.decompress(data, _PIECE)
        except zlib.error:
            if not self._may_be_bare:
                raise
            self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
            piece = self._zlib.decompress(data, _PIECE)
        self._may_be_bare = False
        return piece


def _layers(fields: Sequence[str], limit: int) -> list[_Inflater]:
    """What undoes the compressions that an answer's headers name, the last of them first."""
    codings = [coding.strip().lower() for field in fields for coding in field.split(",")]
    known = [coding for coding in codings if coding in _CODINGS]
    if len(known) > _MAX_CODINGS:
        raise zlib.error("it names too many codings")
    return [_Inflater(coding, limit) for coding in reversed(known)]


def _unpacked(data: bytes, layers: Sequence[_Inflater]) -> Iterator[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[0].feed(data):
        yield from _unpacked(piece, layers[1:])


def _title(request: Request) -> str:
    """A request as messages name it: without what may hold a secret, its user, query and fragment."""
    address = request.url.partition("?")[0].partition("#")[0]
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{request.method} {scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _failure(error: Exception, request: Request) -> NodeError:
    """A failure of the transport, as users see it; the client's own messages may hold secrets of a URL."""
    causes = _causes(error)
    title = _title(request)
    if isinstance(error, aiohttp.InvalidURL):
        return NodeError(f"{title}: not a URL that can be called", "HTTP_URL")
    if isinstance(error, ValueError) and not isinstance(error, OSError | aiohttp.ClientError):
        return NodeError(f"{title} cannot be sent: {error}", "HTTP_REQUEST")
    if tls := next((c for c in reversed(causes) if isinstance(c, ssl.SSLError)), None):
        reason = getattr(tls, "verify_message", "") or tls.reason or str(tls)
        hint = "correct the server's certificate, or set `ignore_ssl` where that is safe"
        return NodeError(f"{title}: no safe connection: {reason}; {hint}", "HTTP_TLS")
    if any(isinstance(c, socket.gaierror) for c in causes):
        message = f"{title}: the host name cannot be resolved; see if it is spelled right"
    else:
        message = f"{title}: {_reason(causes)}; see if the server runs and can be reached from here"
    return NodeError(message, "HTTP_CONNECTION", retryable=True)


def _reason(causes: list[BaseException]) -> str:
    """The most exact of several messages: what the system said, else what the client met."""
    for cause in reversed(causes):
        match cause:
            case aiohttp.ClientHttpProxyError():
                return f"the proxy answered {cause.status}"
            case aiohttp.ClientResponseError():
                return f"the answer is not HTTP: {cause.message.partition(':')[0].lower()}"
            case aiohttp.ServerDisconnectedError():
                return "the server hung up"
            case aiohttp.ClientPayloadError():
                return "the answer broke off"
            case OSError(errno=int(number)):
                return os.strerror(number).lower()
    return "the connection broke"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        if isinstance(error, BaseExceptionGroup):
            found.extend(error.exceptions)
        error = error.__cause__ or error.__context__
    return found
