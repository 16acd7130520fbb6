"""Where a broker is, read from a URL."""

from __future__ import annotations

import ssl
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from rune.core.errors import InfrastructureError

__all__ = ["Address", "parse_url"]

_LONGEST_HEARTBEAT = 65_535


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
    ca: str | None = None
    """The file of certificates that the broker's is checked with; None is the system's."""

    def __str__(self) -> str:
        return f"amqp{'s' if self.tls else ''}://{self.user}@{self.host}:{self.port}/{self.vhost}"

    @property
    def context(self) -> ssl.SSLContext | None:
        """How to encrypt; OSError if the certificates cannot be read."""
        try:
            return ssl.create_default_context(cafile=self.ca) if self.tls else None
        except OSError as error:
            raise OSError(f"the certificates in {self.ca} cannot be read: {error}") from error


def parse_url(url: str) -> Address:
    """The address in `amqp[s]://user:password@host:port/vhost?heartbeat=seconds&ca=file`."""
    try:
        parts = urlsplit(url)
        port, options = parts.port, parse_qs(parts.query)
        (parts.hostname or "").encode("idna")  # or it is no name at all
    except ValueError:
        # What it says may show a part of a password.
        raise _wrong() from None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise _wrong()
    (heartbeat,), (ca,) = options.pop("heartbeat", ["30"])[-1:], options.pop("ca", [None])[-1:]
    if options:
        raise InfrastructureError(f"the broker's URL has an unknown option: {', '.join(options)}")
    if not heartbeat.isdecimal() or int(heartbeat) > _LONGEST_HEARTBEAT:
        raise InfrastructureError(f"the broker's URL wants a heartbeat of {heartbeat} seconds")
    tls = parts.scheme == "amqps"
    return Address(
        host=parts.hostname,
        port=port or (5671 if tls else 5672),
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=unquote(parts.path[1:]) or "/",
        tls=tls,
        heartbeat=int(heartbeat),
        ca=ca,
    )


def _wrong() -> InfrastructureError:
    return InfrastructureError(
        "the broker's URL should look like amqp://user:password@host:5672/vhost, "
        "with what is special in a password written as %40 and the like"
    )
