"""Where a broker is, read from a URL."""

from __future__ import annotations

import ssl
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from rune.core.errors import InfrastructureError

__all__ = ["Address", "parse_url"]


class Address(Struct, frozen=True):
    """Where a broker is, and who we are there."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False
    heartbeat: int = 30
    """Seconds; a connection that is silent for two of them is given up."""

    def __str__(self) -> str:
        return f"amqp{'s' if self.tls else ''}://{self.user}@{self.host}:{self.port}/{self.vhost}"

    @property
    def context(self) -> ssl.SSLContext | None:
        """How to encrypt."""
        return ssl.create_default_context() if self.tls else None


def parse_url(url: str) -> Address:
    """The address in `amqp[s]://user:password@host:port/vhost?heartbeat=seconds`."""
    try:
        parts = urlsplit(url)
        port, options = parts.port, parse_qs(parts.query)
        heartbeat = int(options.pop("heartbeat", ["30"])[0])
    except ValueError as error:
        raise InfrastructureError(f"the broker's URL is wrong: {error}") from error
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise InfrastructureError("the broker's URL should look like amqp://user:password@host:5672/vhost")
    if options:
        raise InfrastructureError(f"the broker's URL has an unknown option: {', '.join(options)}")
    tls = parts.scheme == "amqps"
    return Address(
        host=parts.hostname,
        port=port or (5671 if tls else 5672),
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=unquote(parts.path[1:]) or "/",
        tls=tls,
        heartbeat=heartbeat,
    )
