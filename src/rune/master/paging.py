"""Pages of the API: cursors are sealed, so that only the list that gave one takes it back."""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated

from fastapi import Query

from rune.history.paging import BadCursor

__all__ = ["DEFAULT_LIMIT", "After", "Limit", "sealed", "unsealed"]

DEFAULT_LIMIT = 50
_MOST = 500
_SEAL = 8
"""Letters of the check sum, which finds what was cut, changed or meant for another list."""

Limit = Annotated[int, Query(ge=1, le=_MOST, description="How many at most.")]
After = Annotated[
    str | None,
    Query(max_length=4000, pattern=r"^[A-Za-z0-9_:.-]+$", description="The `next` of the page before."),
]


def sealed(kind: str, cursor: str | None) -> str | None:
    """A cursor as others get to see it."""
    return None if cursor is None else f"{_seal(kind, cursor)}{cursor}"


def unsealed(kind: str, given: str | None) -> str | None:
    """The cursor, if it comes from a list of this kind."""
    if given is None:
        return None
    seal, cursor = given[:_SEAL], given[_SEAL:]
    if seal != _seal(kind, cursor):
        raise BadCursor("`after` must be the `next` of the page before, from the same list")
    return cursor


def _seal(kind: str, cursor: str) -> str:
    return blake2b(f"{kind}/{cursor}".encode(), digest_size=_SEAL // 2).hexdigest()
