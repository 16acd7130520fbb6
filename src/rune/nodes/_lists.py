"""What filter, sort and limit share: a list to work on, fields of its items, the list they leave."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rune.core.errors import NodeError
from rune.core.expressions.values import kind_of
from rune.core.outcome import Done

__all__ = ["ABSENT", "field_of", "list_of", "working_list"]

ABSENT: Any = object()
"""The field of an item that does not have it."""


def list_of(value: Any) -> list[Any]:
    """The value, which has to be a list."""
    if isinstance(value, list):
        return value
    raise NodeError(
        f"`input_array` is {kind_of(value)}, not an array; name a list, such as `$fetch.body.items`",
        "INPUT_NOT_ARRAY",
    )


def working_list(kept: list[Any], original: list[Any]) -> Done:
    """The list as the branch's working payload."""
    return Done({"$json": kept, "count": len(kept), "original_count": len(original)}, working=True)


def field_of(item: Any, path: str) -> Any:
    """The value at a dotted path such as `user.tags.0`; the item itself for an empty one."""
    for part in _parts(path):
        if isinstance(item, dict):
            item = item.get(part, ABSENT)
        elif isinstance(item, list) and part.isdecimal() and int(part) < len(item):
            item = item[int(part)]
        else:
            return ABSENT
    return item


@lru_cache(maxsize=1024)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.replace("[", ".").replace("]", "").split(".")) if path else ()
