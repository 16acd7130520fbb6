"""What shards share, folded one value after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.playbook.program import Reducer

__all__ = ["check_shared", "fold", "nothing"]


def nothing(op: Reducer) -> Any:
    """What a reducer gives where no shard has written."""
    return {"sum": 0, "merge": {}}.get(op)


def fold(reducers: Mapping[str, Reducer], name: str, before: Any, value: Any) -> Any:
    """What a reducer makes of one value more; lists that are appended to are not its business."""
    op = reducers.get(name)
    if op is None:
        message = f"nobody reduces the shared value '{name}'; declare it in `fanout.reducers`"
        raise NodeError(message, "PLAYBOOK_SHARED", {"name": name})
    if before is None:
        return value
    try:
        return _FOLDS[op](before, value)
    except TypeError as error:
        message = f"the shared value '{name}' is a {op}: it cannot take {kind_of(value)}"
        raise NodeError(message, "PLAYBOOK_SHARED", {"name": name, "type": kind_of(value)}) from error


def check_shared(reducers: Mapping[str, Reducer], values: Mapping[str, Any]) -> None:
    """Refuse what no reducer takes, as far as that shows in one iteration's values alone."""
    for name, value in values.items():
        op = reducers.get(name)
        if op != "append":
            fold(reducers, name, nothing(op) if op else None, value)


def _merge(before: dict[str, Any], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("only objects are merged")
    before.update(value)
    return before


_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda before, value: before + value,
    "min": min,
    "max": max,
    "merge": _merge,
}
