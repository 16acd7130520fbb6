"""What a loop runs over: a list, or a description of elements that are made as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.outcome import Source

__all__ = ["Chunk", "chunks", "elements", "source_of"]


def elements(value: Any) -> Sequence[Any]:
    """The elements of a collection as given by `loop.in`."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and set(value) == {"range"}:
        return _span(value["range"])
    raise NodeError(
        f"`loop.in` is {kind_of(value)}; give a list, or {{range: [start, stop, step]}}",
        "PLAYBOOK_LOOP",
        {"type": kind_of(value)},
    )


def source_of(value: Any) -> Source:
    """The same as the items of a fan-out; a range is never written out."""
    found = elements(value)
    if isinstance(found, range):
        return Source(start=found.start, stop=found.stop, stride=found.step)
    return Source(items=list(found))


class Chunk(Struct, frozen=True, tag_field="~chunk", tag=True):
    """Consecutive elements that share a shard, where there are more than there may be shards."""

    at: int
    """The index of the first of them."""
    source: Any

    def elements(self) -> Sequence[Any]:
        """The elements themselves."""
        return elements(self.source)


def chunks(value: Any, most: int) -> list[Chunk] | None:
    """A collection in at most so many chunks, of about the same size; None if it has no more elements."""
    found = elements(value)
    if len(found) <= most:
        return None
    size = -(-len(found) // most)
    return [Chunk(at, _part(found, at, size)) for at in range(0, len(found), size)]


def _part(found: Sequence[Any], at: int, size: int) -> Any:
    part = found[at : at + size]
    return {"range": [part.start, part.stop, part.step]} if isinstance(part, range) else list(part)


def _span(bounds: Any) -> range:
    given = bounds if isinstance(bounds, list) else [bounds]
    whole = all(isinstance(bound, int) and not isinstance(bound, bool) for bound in given)
    if not whole or not 1 <= len(given) <= 3 or given[2:] == [0]:
        raise NodeError(
            "`range` is `n`, `[stop]`, `[start, stop]` or `[start, stop, step]`, in whole numbers",
            "PLAYBOOK_LOOP",
        )
    return range(*given)
