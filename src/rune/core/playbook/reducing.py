"""What shards share, folded one value after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rune.core.playbook.program import Reducer

__all__ = ["fold", "nothing"]


def nothing(op: Reducer) -> Any:
    """What a reducer gives where no shard has written."""
    return {"sum": 0, "merge": {}}.get(op)


def fold(op: Reducer, before: Any, value: Any) -> Any:
    """What a reducer makes of one value more; lists that are appended to are not its business."""
    if before is None:
        return value
    return _FOLDS[op](before, value)


def _merge(before: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    before.update(value)
    return before


_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda before, value: before + value,
    "min": min,
    "max": max,
    "merge": _merge,
}
