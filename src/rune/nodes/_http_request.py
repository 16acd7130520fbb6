"""Requests, their addresses, and what a redirect makes of both."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import parse_qs, quote, unquote_to_bytes, urlencode, urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from rune.core.errors import NodeError

__all__ = ["NUMERIC", "PORTS", "Request", "Response", "Url", "parse_url", "redirected", "title", "with_user"]

PORTS = {"http": 80, "https": 443}
NUMERIC = re.compile(r"[\d.]+|.*:.*", re.ASCII)
"""Hosts that are addresses, and not names."""
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII)
_UNSAFE_IN_PATH = re.compile(r'[^!-~]|["#<>?`{}]')
_UNSAFE_IN_QUERY = re.compile(r'[^!-~]|["#<>]')


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


class Url(Struct, frozen=True):
    """An address whose parts are fit to send; `%xx` stays as it was given, since signatures count on it."""

    scheme: str
    host: str
    port: int
    path: str
    query: str
    user: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{host}{port}{self.path}{query}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    def with_query(self, pairs: Sequence[tuple[str, str]]) -> Url:
        """This address with further parameters, which come in place of those of the same name."""
        given: dict[str, list[str]] = {}
        for name, value in pairs:
            given.setdefault(name, []).append(value)
        merged = {**parse_qs(self.query, keep_blank_values=True), **given}
        return replace(self, query=urlencode(merged, doseq=True))


def parse_url(text: str, request: Request, base: str = "") -> Url:
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
        raise NodeError(f"{title(request)}: not a URL: {error}", "HTTP_URL") from None
    if parts.scheme not in PORTS or not _HOST.fullmatch(host):
        raise NodeError(
            f"{title(request)}: a URL has to begin with http:// or https:// and name a host", "HTTP_URL"
        )
    user = parts.netloc.rpartition("@")[0]
    return Url(parts.scheme, host, PORTS[parts.scheme] if port is None else port, path, query, user)


@lru_cache(maxsize=256)
def _encoded_host(host: str) -> str:
    if not host.isascii():
        return URL.build(scheme="http", host=host).raw_host or ""
    if NUMERIC.fullmatch(host):
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


def with_user(url: Url, request: Request) -> Request:
    """Turn `user:password@` in a URL into a header that a redirect to elsewhere drops."""
    if not url.user:
        return request
    name, _, password = url.user.partition(":")
    basic = b64encode(unquote_to_bytes(name) + b":" + unquote_to_bytes(password)).decode()
    return replace(request, headers={"authorization": f"Basic {basic}", **request.headers})


def redirected(url: Url, request: Request, status: int, location: str) -> tuple[Url, Request]:
    """The request that a redirect asks for: by GET where the method changes, without secrets elsewhere."""
    target = parse_url(location, request, str(url))
    headers, method, body = request.headers, request.method, request.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = {
            k: v for k, v in headers.items() if not k.startswith("content-") and k != "idempotency-key"
        }
    if target.origin != url.origin:
        dropped = _SECRET_HEADERS | request.secret | {"host"}
        headers = {k: v for k, v in headers.items() if k not in dropped}
    return target, replace(request, url=str(target), method=method, body=body, headers=headers)


def title(request: Request) -> str:
    """A request as messages name it: without what may hold a secret, its user, query and fragment."""
    address = request.url.partition("?")[0].partition("#")[0]
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{request.method} {scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
