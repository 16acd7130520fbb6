"""The secrets that browsers and programs show, which are random enough for a plain hash."""

from __future__ import annotations

import secrets
from hashlib import sha256

__all__ = ["PREFIX", "digest", "new_secret"]

PREFIX = "rune_"
"""With what tokens begin, so that they are found where they should not be."""


def new_secret(prefix: str = "") -> str:
    """256 random bits, as text."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What to keep of a secret."""
    return sha256(secret.encode()).hexdigest()
