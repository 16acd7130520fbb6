"""Whether a call of a webhook is authentic: by a signature, a secret header, or a user and password."""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "Authentication",
    "BasicAuth",
    "HeaderAuth",
    "HeaderName",
    "HmacAuth",
    "NoAuth",
    "is_authentic",
    "secret_headers",
]

_HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"
HeaderName = Annotated[str, Field(pattern=_HEADER)]


class _Auth(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NoAuth(_Auth):
    """Whoever knows the URL may call it."""

    kind: Literal["none"] = "none"


class HmacAuth(_Auth):
    """The body is signed with a secret that both sides know."""

    kind: Literal["hmac"]
    header: HeaderName = Field("X-Hub-Signature-256", description="Where the signature is.")
    algorithm: Literal["sha256", "sha1", "sha512"] = "sha256"
    prefix: str = Field("sha256=", max_length=50, description="What stands before the signature.")
    encoding: Literal["hex", "base64"] = "hex"
    timestamp_header: HeaderName | None = Field(
        None, description="Where the time of signing is, in seconds since 1970."
    )
    tolerance: float = Field(300, gt=0, le=86_400, description="Seconds a signature is good for.")
    signed: str = Field(
        "",
        max_length=200,
        description="What is signed; empty is `{body}`, or `{timestamp}.{body}` where there is a timestamp.",
    )

    @model_validator(mode="after")
    def _signs_the_body(self) -> HmacAuth:
        if self.signed and self.signed.count("{body}") != 1:
            raise ValueError("`signed` contains {body} once")
        if self.signed and ("{timestamp}" in self.signed) != (self.timestamp_header is not None):
            raise ValueError("a timestamp that is not signed is worth nothing: use both, or neither")
        return self


class HeaderAuth(_Auth):
    """A header has a secret value."""

    kind: Literal["header"]
    header: HeaderName = "X-Api-Key"


class BasicAuth(_Auth):
    """A user and a password, as browsers send them."""

    kind: Literal["basic"]
    username: str = Field(min_length=1, max_length=200, pattern=r"^[^:\x00-\x1f]+$")


Authentication = Annotated[NoAuth | HmacAuth | HeaderAuth | BasicAuth, Field(discriminator="kind")]


def secret_headers(auth: Authentication) -> frozenset[str]:
    """The headers that an execution must not see, in lower case."""
    hidden = {"authorization", "proxy-authorization", "cookie"}
    if isinstance(auth, HeaderAuth | HmacAuth):
        hidden.add(auth.header.lower())
    return frozenset(hidden)


def is_authentic(
    auth: Authentication, secret: str, headers: Mapping[str, str], body: bytes, now: float
) -> bool:
    """Whether a call is authentic, compared in constant time; `headers` finds names in any case."""
    match auth:
        case NoAuth():
            return True
        case HeaderAuth():
            return _same(headers.get(auth.header, "").encode("latin-1"), secret.encode())
        case BasicAuth():
            given = _credentials(headers.get("authorization", ""))
            return _same(given, f"{auth.username}:{secret}".encode())
        case HmacAuth():
            return _is_signed(auth, secret, headers, body, now)


def _is_signed(auth: HmacAuth, secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    stamp = headers.get(auth.timestamp_header, "") if auth.timestamp_header else ""
    if auth.timestamp_header and not _is_recent(stamp, now, auth.tolerance):
        return False
    template = auth.signed or ("{timestamp}.{body}" if auth.timestamp_header else "{body}")
    before, _, after = template.replace("{timestamp}", stamp).partition("{body}")
    message = before.encode() + body + after.encode()
    digest = hmac.new(secret.encode(), message, getattr(hashlib, auth.algorithm)).digest()
    expected = digest.hex() if auth.encoding == "hex" else b64encode(digest).decode()
    given = headers.get(auth.header, "")
    if not given.startswith(auth.prefix):
        return False
    given = given.removeprefix(auth.prefix)
    return _same((given.lower() if auth.encoding == "hex" else given).encode(), expected.encode())


def _is_recent(stamp: str, now: float, tolerance: float) -> bool:
    if not stamp.isascii() or not stamp.isdigit() or len(stamp) > 15:
        return False
    return abs(now - int(stamp)) <= tolerance


def _credentials(header: str) -> bytes:
    kind, _, value = header.partition(" ")
    if kind.lower() != "basic":
        return b""
    try:
        return b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _same(given: bytes, expected: bytes) -> bool:
    # Of digests, so that not even the length shows.
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(expected).digest())
