"""Tokens in URLs: random ones for webhooks, signed ones that say which wait they end."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from msgspec import Struct

__all__ = ["Resumable", "new_token", "read_token", "sign", "token_hash"]


def new_token() -> str:
    """A token nobody can guess."""
    return secrets.token_urlsafe(24)


def token_hash(token: str) -> str:
    """What is stored of a token to find it by."""
    return hashlib.sha256(token.encode()).hexdigest()


class Resumable(Struct, frozen=True):
    """What a resume token is good for: one step, or whatever waits at one node."""

    execution: str
    step: str = ""
    node: str = ""

    @property
    def subject(self) -> str:
        """Its part of the token: no id has a tilde in it."""
        return self.step or f"~{self.node}"


def sign(what: Resumable, key: bytes) -> str:
    """The token of a wait; only characters that need no escaping in a URL."""
    return f"{what.execution}.{what.subject}.{_mac(what, key)}"


def read_token(token: str, keys: Sequence[bytes]) -> Resumable | None:
    """What a token is good for; None if none of the keys has signed it."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts) or not token.isascii():
        return None
    execution, subject, mac = parts
    what = Resumable(execution, node=subject[1:]) if subject[0] == "~" else Resumable(execution, step=subject)
    known = [hmac.compare_digest(mac.encode(), _mac(what, key).encode()) for key in keys]
    return what if any(known) else None


def _mac(what: Resumable, key: bytes) -> str:
    message = f"rune resume 1\n{what.execution}\n{what.subject}".encode()
    return urlsafe_b64encode(hmac.digest(key, message, "sha256")[:18]).decode()
