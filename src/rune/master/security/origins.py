"""Where a request comes from, as browsers tell it: other sites' pages are kept out."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

__all__ = ["HEADER", "Origins", "is_loopback"]

HEADER = "x-rune-request"
"""A header that another site's page cannot send, for browsers that do not say where a request comes from."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    name = host.lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


class Origins:
    """Which hosts are ours, and which origins may speak to us."""

    def __init__(self, hosts: Iterable[str] = (), public_url: str | None = None) -> None:
        public = urlsplit(public_url or "")
        self._public = _place(public.scheme, public.netloc)
        self._hosts = {host.lower().strip("[]") for host in (*hosts, public.hostname or "") if host}

    def is_ours(self, connection: HTTPConnection) -> bool:
        """Whether a request names a host of ours: a name that others bend to our address is not one."""
        place = _place("http", connection.headers.get("host", ""))
        return place is not None and (is_loopback(place[0]) or place[0] in self._hosts)

    def is_same(self, connection: HTTPConnection, *, strict: bool) -> bool:
        """Whether a request comes from a page of ours, or from no page at all.

        `strict` asks for proof where the request may change something and only the browser adds who it is.
        """
        headers = connection.headers
        site = headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is not None:
            scheme, _, netloc = origin.partition("://")
            place = _place(scheme, netloc)
            return place is not None and place in (_place(scheme, headers.get("host", "")), self._public)
        changes = connection.scope["type"] == "websocket" or connection.scope["method"] not in _SAFE
        return not (strict and changes) or site is not None or HEADER in headers


def _place(scheme: str, netloc: str) -> tuple[str, int] | None:
    """Host and port; a proxy that speaks https for us may speak http to us, so the scheme is left out."""
    try:
        parts = urlsplit(f"//{netloc}")
        port = parts.port or _PORTS.get(scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port and "@" not in netloc else None
