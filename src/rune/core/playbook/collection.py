"""What a loop runs over: a list, or a description of elements that are made or read as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.outcome import Source
from rune.core.playbook.references import is_manifest, is_result_ref
from rune.core.sources import Descriptor, span_of

__all__ = ["Chunk", "chunk_of", "chunks", "elements", "lazy_of", "source_of"]

_TAG = "~chunk"


def elements(value: Any) -> Sequence[Any]:
    """The elements of a collection as given by `loop.in`, where none has to be read."""
    if isinstance(value, list):
        return value
    found = span_of(_described(value)) if isinstance(value, dict) and not _is_kept(value) else None
    if found is None:
        raise NodeError(
            f"`loop.in` is {kind_of(value)}; give a list, or a source such as {{range: [start, stop, step]}} "
            "or {jsonl: file}",
            "PLAYBOOK_LOOP",
            {"type": kind_of(value)},
        )
    return found


def lazy_of(value: Any) -> dict[str, Any] | None:
    """The description of a collection that has to be read; None of one that is at hand."""
    if not isinstance(value, dict):
        return None
    if _is_kept(value):
        return value
    described = _described(value)
    return described.fixed() if described.lazy else None


def _is_kept(value: dict[str, Any]) -> bool:
    return is_manifest(value) or is_result_ref(value)


def _described(value: dict[str, Any]) -> Descriptor:
    try:
        return msgspec.convert(value, Descriptor, strict=False)
    except msgspec.ValidationError as error:
        raise NodeError(f"`loop.in`: {error}", "PLAYBOOK_LOOP", {"type": "object"}) from error


def source_of(value: Any) -> Source:
    """The same as the items of a fan-out; a range is never written out, and what is described is not read."""
    described = lazy_of(value)
    if described is not None:
        return Source(lazy=described)
    found = elements(value)
    if isinstance(found, range):
        return Source(start=found.start, stop=found.stop, stride=found.step)
    return Source(items=list(found))


class Chunk(Struct, frozen=True, tag_field=_TAG, tag=True):
    """Consecutive elements that share a shard, where there are more than there may be shards."""

    at: int
    """The index of the first of them."""
    source: Any
    of: int = 0
    """How many elements the whole collection has."""

    def elements(self) -> Sequence[Any]:
        """The elements themselves."""
        return elements(self.source)


def chunk_of(item: Any) -> Chunk | None:
    """The chunk that an item of a loop with `max_shards` is; None if it is an element."""
    return msgspec.convert(item, Chunk) if _is_tagged(item) else None


def _is_tagged(item: Any) -> bool:
    return isinstance(item, dict) and _TAG in item


def chunks(value: Any, most: int) -> list[Chunk] | None:
    """A collection in at most so many chunks, of about the same size; None if it has no more elements."""
    if lazy_of(value) is not None:
        raise NodeError(
            "`max_shards` needs to know how many elements there are, and those of a source that is read are "
            "not known before its end; leave it out: `max_concurrent` limits what runs at the same time",
            "PLAYBOOK_LOOP",
        )
    found = elements(value)
    # An element that looks like a chunk has to be in one, not to be taken for it.
    if len(found) <= most and (isinstance(found, range) or not any(map(_is_tagged, found))):
        return None
    size = -(-len(found) // most)
    return [Chunk(at, _part(found, at, size), len(found)) for at in range(0, len(found), size)]


def _part(found: Sequence[Any], at: int, size: int) -> Any:
    part = found[at : at + size]
    return {"range": [part.start, part.stop, part.step]} if isinstance(part, range) else list(part)
