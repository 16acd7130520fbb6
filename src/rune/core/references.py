"""References: how JSON names a value that is stored with an execution, and how to follow such names."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

from rune.core.errors import NodeError

__all__ = ["STORE", "follow", "hash_of", "hashes_in", "reference"]

STORE = "rune"
"""The store of values that the engine keeps with an execution."""

_SCHEME = f"{STORE}:"
_REFERENCE = re.compile(rf'"{_SCHEME}([0-9a-f]{{40}})"'.encode())
_MANY, _BYTES = 16, 8 * 1024 * 1024
"""Values that are read together, and bytes that those have if none is larger than any before."""


def reference(hash: str) -> str:
    """The name of a stored value."""
    return f"{_SCHEME}{hash}"


def hash_of(reference: str) -> str:
    """The hash of the value that a reference names."""
    hash = reference.removeprefix(_SCHEME)
    if not _REFERENCE.fullmatch(f'"{_SCHEME}{hash}"'.encode()) or not reference.startswith(_SCHEME):
        raise NodeError(
            f"{reference[:100]!r} is no reference of the form {_SCHEME}<hash>", "REFERENCE_INVALID"
        )
    return hash


def hashes_in(data: bytes) -> set[str]:
    """The hashes of all values that JSON names."""
    return {found.decode() for found in _REFERENCE.findall(data)}


async def follow(
    hashes: Iterable[str], get: Callable[[Sequence[str]], Awaitable[Mapping[str, bytes]]]
) -> AsyncIterator[tuple[Sequence[str], Mapping[str, bytes]]]:
    """Read values, and those that they name in turn, some at a time: those asked for, and what was found."""
    todo = deque(sorted(hashes))
    seen = set(todo)
    many, largest = 1, 1
    while todo:
        wanted = [todo.popleft() for _ in range(min(many, len(todo)))]
        found = await get(wanted)
        yield wanted, found
        for data in found.values():
            fresh = hashes_in(data) - seen
            todo.extend(sorted(fresh))
            seen |= fresh
            largest = max(largest, len(data))
        many = max(1, min(_MANY, _BYTES // largest))
