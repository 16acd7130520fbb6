"""Lists in pages: a cursor says after what the next one goes on."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from rune.core.errors import RuneError

__all__ = ["BadCursor", "Page", "after", "cursor_after", "paged"]

T = TypeVar("T")


class BadCursor(RuneError):
    """A cursor that none of our pages gave."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list, and where it goes on."""

    items: list[T]
    next: str | None = None
    """The cursor of the next page; None: that was all."""


def paged(found: Sequence[T], limit: int, key: Callable[[T], Sequence[Any]]) -> Page[T]:
    """A page out of one thing more than it may hold, each with its place in the order."""
    if len(found) <= limit:
        return Page(list(found))
    return Page(list(found[:limit]), cursor_after(*key(found[limit - 1])))


def cursor_after(*place: Any) -> str:
    """The cursor of a page that goes on after this place in the order."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def after(cursor: str, *types: type) -> tuple[Any, ...]:
    """The place a cursor names; BadCursor if it does not have these types."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place: tuple[Any, ...] = msgspec.json.decode(data, type=tuple[types])  # type: ignore[valid-type]
    except (binascii.Error, msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise BadCursor("the cursor is not one that a page of this list gave") from error
    if any(isinstance(part, str) and "\0" in part for part in place):
        raise BadCursor("the cursor is not one that a page of this list gave")
    return place
