"""Results that Rune keeps: one list by reference, or many results in the parts of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.node import Portion, StepContext
from rune.core.playbook.references import is_manifest, is_result_ref

__all__ = ["read_part"]

_PORTION = 1024 * 1024
"""Bytes of items after which a portion is enough."""

_encode = msgspec.json.Encoder().encode


class _Place(msgspec.Struct):
    """A part, and an item in it."""

    part: int = 0
    item: int = 0


async def read_part(kept: Mapping[str, Any], context: StepContext, position: Any, wanted: int) -> Portion:
    """Some items of one part."""
    parts = kept["parts"] if is_manifest(kept) else [kept]
    if not parts:
        return Portion([])
    place = _Place() if position is None else msgspec.convert(position, _Place)
    held = await context.load(parts[place.part]["ref"])
    if not isinstance(held, list):
        raise NodeError(f"what is kept is {kind_of(held)}, not a list", "SOURCE_NOT_LIST")
    items: list[Any] = []
    size = 0
    for item in held[place.item : place.item + wanted]:
        # A manifest refers to results that are large themselves.
        large = is_manifest(kept) and is_result_ref(item)
        size += _size(item) if large else len(_encode(item))
        if items and size > _PORTION:
            break
        items.append(await context.load(item["ref"]) if large else item)
    stop = place.item + len(items)
    following = _Place(place.part, stop) if stop < len(held) else _Place(place.part + 1)
    more = following.part < len(parts)
    return Portion(items, msgspec.to_builtins(following) if more else None)


def _size(item: Mapping[str, Any]) -> int:
    """Bytes of what a reference stands for, as far as it says so."""
    meta = item.get("meta")
    size = meta.get("bytes") if isinstance(meta, dict) else None
    return size if isinstance(size, int) else 0
