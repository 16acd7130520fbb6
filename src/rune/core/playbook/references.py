"""Results by reference: what stands for a value that is stored, and for a list of results in stored parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from rune.core.references import STORE, reference

__all__ = [
    "LARGE",
    "MANY",
    "is_loop_result",
    "is_manifest",
    "is_result_ref",
    "is_sink",
    "manifest",
    "part",
    "poses",
    "preview",
    "result_ref",
    "results_in",
    "starts_as_reference",
]

LARGE = 64 * 1024
"""Bytes of JSON over which a result is stored by itself."""
MANY = 1000
"""Results of a loop over which they are stored in parts; shards over which they are not named one by one."""

_BEGINNING = f'{{"kind":"result_ref","ref":"{reference("")}'.encode()
_SIZE = f'"(?:,"store":"{STORE}","meta":{{"bytes":([0-9]{{1,15}}),)?'.encode()
_RESULT = re.compile(re.escape(_BEGINNING) + b"([0-9a-f]{40})" + _SIZE)
_TEXT, _ELEMENTS, _FIELDS, _DEPTH = 80, 3, 10, 3
"""What a preview shows of a text, a list and an object, and how deep."""


def results_in(data: bytes) -> dict[str, int]:
    """The values that a `result_ref` in JSON stands for, without parts of manifests: their sizes by hash.

    The size of one whose `result_ref` does not say it is 0.
    """
    found = _RESULT.findall(data) if _BEGINNING in data else ()
    return {hash.decode(): int(size or 0) for hash, size in found}


def result_ref(reference: str, data: bytes, shown: Any) -> dict[str, Any]:
    """What stands for a result that is stored as `data`; of `shown` it has a preview."""
    return {
        "kind": "result_ref",
        "ref": reference,
        "store": STORE,
        "meta": {"bytes": len(data), "sha256": sha256(data).hexdigest()},
        "preview": preview(shown),
    }


def part(reference: str, data: bytes, at: int, count: int) -> dict[str, Any]:
    """Some consecutive results of a manifest, stored as a JSON list; `at` is the index of the first."""
    return {
        "ref": reference,
        "at": at,
        "count": count,
        "bytes": len(data),
        "sha256": sha256(data).hexdigest(),
    }


def manifest(parts: Sequence[dict[str, Any]], head: Iterable[Any]) -> dict[str, Any]:
    """What stands for a list of results that is stored in parts; `head` is how it begins."""
    return {
        "kind": "manifest",
        "store": STORE,
        "count": sum(part["count"] for part in parts),
        "bytes": sum(part["bytes"] for part in parts),
        "parts": list(parts),
        "preview": [preview(value) for value, _ in zip(head, range(_ELEMENTS), strict=False)],
    }


def is_result_ref(value: Any) -> bool:
    """Whether a value stands for a stored one."""
    return _is(value, "result_ref") and isinstance(value.get("ref"), str)


def is_manifest(value: Any) -> bool:
    """Whether a value stands for a list in stored parts."""
    if not _is(value, "manifest") or not isinstance(value.get("parts"), list):
        return False
    return all(isinstance(part, dict) and isinstance(part.get("ref"), str) for part in value["parts"])


def is_loop_result(value: Any) -> bool:
    """Whether a value has the shape of a loop's result, in which each list may be a manifest."""
    return isinstance(value, dict) and "results" in value and value.keys() <= {"results", "count", "shared"}


def poses(value: Any) -> bool:
    """Whether a value would be taken for one that stands for others, as data from elsewhere may."""
    if is_loop_result(value):
        shared = value.get("shared")
        within = [*value.values(), *(shared.values() if isinstance(shared, dict) else ())]
        return any(is_result_ref(inner) or is_manifest(inner) for inner in within)
    return is_result_ref(value) or is_manifest(value)


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, dict) and value.get("kind") == kind and value.get("store") == STORE


def is_sink(value: Any) -> bool:
    """Whether a value says where a task has written: `{store, key, …}`."""
    return isinstance(value, dict) and "store" in value and "key" in value


def starts_as_reference(data: bytes) -> bool:
    """Whether JSON is a `result_ref` as it is written here."""
    return data.startswith(_BEGINNING)


def preview(value: Any, depth: int = _DEPTH) -> Any:
    """The head of a value: its shape is kept, its texts, lists and objects are cut short."""
    match value:
        case str():
            return value if len(value) <= _TEXT else value[:_TEXT] + "…"
        case list() | tuple():
            return [preview(inner, depth - 1) for inner in value[:_ELEMENTS]] if depth else []
        case dict() if is_result_ref(value) or is_manifest(value):
            return preview(value.get("preview"), depth)
        case dict():
            # Wide at the top only: a preview is short.
            shown = list(value.items())[: _FIELDS if depth == _DEPTH else _ELEMENTS] if depth else []
            return {key[:_TEXT]: preview(inner, depth - 1) for key, inner in shown}
        case _:
            return value
