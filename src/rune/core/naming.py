"""Texts that name an item, and travel with every message of it: they are never long."""

from __future__ import annotations

from hashlib import sha256

__all__ = ["LONGEST", "short_key", "short_label"]

LONGEST = 200
"""Characters of a label or a key."""
_DIGEST = 32


def short_label(text: str) -> str:
    """A text that shows an item."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def short_key(text: str) -> str:
    """A text that tells an item from others, also where it is cut."""
    if len(text) <= LONGEST:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{text[: LONGEST - _DIGEST - 1]}…{digest}"
