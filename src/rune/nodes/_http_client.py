"""The pooled HTTP client that all http steps of a worker share; imported when the first of them runs."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import zlib
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.request import getproxies, proxy_bypass

import aiohttp
from msgspec import Struct
from yarl import URL

from rune import __version__
from rune.core.errors import NodeError
from rune.nodes._guard import Guard
from rune.nodes._http_body import TooLarge, layers_of, unpacked
from rune.nodes._http_failures import failure
from rune.nodes._http_request import (
    NUMERIC,
    PORTS,
    Request,
    Response,
    Url,
    parse_url,
    redirected,
    title,
    with_user,
)

__all__ = ["HttpClient", "Request", "Response"]

MAX_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 10
_FRAMING = frozenset({"content-length", "expect", "transfer-encoding"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LARGE_BODY = 1024 * 1024
# Where systems keep their certificates, for a Python whose OpenSSL was built to look elsewhere.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class _Hop(Struct):
    """One request of a chain of redirects, as its connection sees it."""

    host: str
    proxied: bool
    refusals: list[NodeError]


_hop: ContextVar[_Hop] = ContextVar("_hop")


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
                f"{title(request)} took longer than {timeout:g} s; raise `timeout`, or see why",
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
        url = parse_url(request.url, request)
        if request.query:
            url = url.with_query(request.query)
        request = with_user(url, request)
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(url, request)
            location = response.header("location")
            if not request.follow or response.status not in _REDIRECTS or not location:
                return response
            url, request = redirected(url, request, response.status, location)
        raise NodeError(
            f"{title(request)} was redirected more than {MAX_REDIRECTS} times, perhaps in circles",
            "HTTP_REDIRECTS",
        )

    async def _send(self, url: Url, request: Request) -> Response:
        session = self._session or self._open()
        proxy = self._proxy(url, request) if self._proxies else None
        if self._guard is not None and proxy is not None:
            self._guard.check_host(url.host, url.port)
        hop = _Hop(url.host, proxy is not None, [])
        _hop.set(hop)
        body = request.body
        try:
            async with session.request(
                request.method,
                URL(str(url), encoded=True),
                # How the message is framed is the client's to say.
                headers={k: v for k, v in request.headers.items() if k not in _FRAMING},
                data=BytesIO(body) if body and len(body) > _LARGE_BODY else body,
                allow_redirects=False,
                proxy=proxy,
                ssl=self._context(request.verify) if url.scheme == "https" else True,
            ) as answer:
                content = await self._read(answer, request)
        except (aiohttp.ClientError, ValueError) as error:
            if hop.refusals and isinstance(error, aiohttp.ClientConnectorError):
                raise hop.refusals[0] from None
            raise failure(error, request) from error
        fields = tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in answer.raw_headers)
        reason = (answer.reason or "").encode("ascii", "ignore").decode()
        return Response(answer.status, reason, fields, content)

    async def _read(self, answer: aiohttp.ClientResponse, request: Request) -> bytes:
        """The body; the limit holds for what comes in, and for every piece of what it unpacks to."""
        body = bytearray()
        received = 0
        try:
            layers = layers_of(answer.headers.getall("Content-Encoding", ()), self._max_bytes)
            async for data in answer.content.iter_any():
                received += len(data)
                for piece in unpacked(data, layers):
                    body += piece
                    if len(body) > self._max_bytes:
                        raise TooLarge
                if received > self._max_bytes:
                    raise TooLarge
        except TooLarge:
            raise NodeError(
                f"the answer to {title(request)} is larger than {self._max_bytes} bytes; "
                "ask for less at a time, in pages",
                "HTTP_TOO_LARGE",
                {"limit": self._max_bytes},
            ) from None
        except zlib.error as error:
            raise NodeError(
                f"the answer to {title(request)} is not what its Content-Encoding says: {error}",
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
        hop = _hop.get()
        # The proxy is the environment's choice, and none of the step's.
        if self._guard is not None and not hop.proxied:
            try:
                self._guard(hop.host, str(address[0]), int(address[1]))
            except NodeError as error:
                hop.refusals.append(error)
                raise PermissionError(errno.EACCES, "refused") from error
        return socket.socket(family, kind, protocol)

    def _context(self, verify: bool) -> ssl.SSLContext | bool:
        """Whom to trust; the system's certificates are read for the first https request."""
        if not verify:
            return False
        if self._tls is None:
            self._tls = _system_tls()
        return self._tls

    def _proxy(self, url: Url, request: Request) -> URL | None:
        """The proxy that the environment names for an address."""
        text = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not text or _goes_direct(url, self._proxies.get("no", "")):
            return None
        try:
            proxy = URL(text if "://" in text else f"http://{text}")
        except ValueError:
            proxy = URL()
        if proxy.scheme not in PORTS or not proxy.host:
            raise NodeError(
                f"{title(request)} cannot be sent: the proxy that the environment names for {url.scheme} "
                "is not an http:// or https:// address; correct it, or name the host in NO_PROXY",
                "HTTP_PROXY",
            )
        return proxy


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


def _goes_direct(url: Url, exceptions: str) -> bool:
    """Whether NO_PROXY names an address: by name, by the end of its name, or by its network."""
    if proxy_bypass(f"{url.host}:{url.port}"):
        return True
    if not NUMERIC.fullmatch(url.host):
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
