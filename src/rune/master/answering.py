"""Answers: JSON that is encoded once, by msgspec, from values that are stored as JSON already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from fastapi import Response
from msgspec import Raw

__all__ = ["answer", "iso", "listed", "raw"]

_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(_encode(value), status, headers, "application/json")


def listed(items: Iterable[Any], next: str | None) -> Response:
    """One page of a list."""
    return answer({"items": list(items), "next": next})


def raw(text: str | bytes | None) -> Raw:
    """JSON that is stored as text, to be put into an answer as it is."""
    if text is None:
        return _NULL
    return Raw(text.encode() if isinstance(text, str) else text)


def iso(seconds: float | None) -> str | None:
    """A time as the API writes it: ISO 8601, UTC, with milliseconds."""
    if seconds is None:
        return None
    # Cut, not rounded: whoever asks for what happened since then gets this, too.
    millis = int(seconds * 1000 + 0.001)
    moment = datetime.fromtimestamp(millis // 1000, UTC).isoformat(timespec="seconds")
    return f"{moment[:-6]}.{millis % 1000:03d}Z"
