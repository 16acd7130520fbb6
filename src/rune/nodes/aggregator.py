"""The aggregator node: the items' results become one."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from rune.core.errors import NodeError
from rune.core.expressions import Expression
from rune.core.expressions.values import kind_of
from rune.core.node import Gathered, NodeType, Role, StepContext
from rune.core.outcome import Arrive, Done, Outcome

__all__ = ["Aggregator", "Reduction"]

Op = Literal["sum", "count", "min", "max", "mean", "append", "merge"]
_KEPT = ("append", "merge")
"""Reductions that need every value, in the order of the items; the others fold in constant space."""


class Reduction(Struct, frozen=True, kw_only=True):
    """One value that the items reduce to."""

    op: Annotated[Op, Meta(description="How: `count` counts the items with a true value.")]
    value: Annotated[
        Expression | None, Meta(description="Expression of the value each item adds; without it, its result.")
    ] = None


class Aggregator(NodeType, kw_only=True):
    """Close a split: gather its items' results in order, or reduce them to a few values.

    Where nothing but sums, counts, extremes and means is asked for, no result is kept: memory stays constant.
    """

    name: ClassVar = "aggregator"
    role: ClassVar = Role.GATHER
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    reads: ClassVar = ("$previous",)

    timeout: Annotated[
        float | None, Meta(description="Seconds for all items, from the split's start.", gt=0)
    ] = None
    collect: Annotated[
        Expression | None, Meta(description="Expression of an item's result; without it, the output before.")
    ] = None
    reduce: Annotated[
        Op | dict[str, Reduction] | None,
        Meta(description="An operation on the results, or several by name, each with a value of its own."),
    ] = None

    def keeps_results(self) -> bool:
        ops = [reduction.op for reduction in self._reductions().values()]
        return self.collect is not None or not ops or any(op in _KEPT for op in ops)

    async def run(self, context: StepContext) -> Outcome:
        if context.gathered is not None:
            return Done(self._output(context.gathered))
        if self.reduce is None:
            return Arrive(context.evaluate(self.collect) if self.collect else context.previous())
        return self._arrive(context)

    def _reductions(self) -> dict[str, Reduction]:
        if self.reduce is None:
            return {}
        return self.reduce if isinstance(self.reduce, dict) else {"": Reduction(op=self.reduce)}

    def _arrive(self, context: StepContext) -> Arrive:
        reductions = self._reductions().values()
        result = None
        if self.collect is not None or any(r.value is None and r.op != "count" for r in reductions):
            result = (
                context.evaluate(self.collect) if self.collect else msgspec.json.decode(context.previous())
            )
        folds: list[int | float] = []
        kept: list[Any] = []
        for reduction in reductions:
            value = result if reduction.value is None else context.evaluate(reduction.value)
            if reduction.op in _KEPT:
                kept.append(_mergeable(value) if reduction.op == "merge" else value)
            elif reduction.op == "count":
                folds.append(1 if reduction.value is None or value else 0)
            else:
                folds.append(_number(value, reduction.op))
        shown = result if self.collect is not None else None
        return Arrive({"$collected": shown, "$values": kept} if kept else shown, tuple(folds))

    def _output(self, gathered: Gathered) -> dict[str, Any]:
        counts = {
            "count": gathered.total,
            "succeeded": gathered.succeeded,
            "failed": gathered.failed,
            "skipped": gathered.skipped,
        }
        reductions = self._reductions()
        if not reductions:
            return {"aggregated": gathered.results, **counts}
        slots: Any = gathered.results
        values: list[list[Any]] = []
        if any(reduction.op in _KEPT for reduction in reductions.values()):
            slots, values = _opened(gathered.results)
        folds, columns = iter(gathered.folds), iter(zip(*values, strict=True))
        reduced = {
            name: _kept(r.op, next(columns, ())) if r.op in _KEPT else _folded(r.op, next(folds, None))
            for name, r in reductions.items()
        }
        aggregated = {"aggregated": slots} if self.collect is not None else {}
        return {**aggregated, **counts, "reduced": reduced if isinstance(self.reduce, dict) else reduced[""]}


def _number(value: Any, op: str) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise NodeError(
        f"cannot reduce {kind_of(value)} by `{op}`, which takes numbers; give each item's number as `value`",
        "REDUCE_TYPE",
    )


def _mergeable(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise NodeError(f"cannot reduce {kind_of(value)} by `merge`, which takes objects", "REDUCE_TYPE")


def _folded(op: str, fold: tuple[int | float, int, int | float, int | float] | None) -> Any:
    total, count, least, greatest = fold or (0, 0, 0, 0)
    if total in (math.inf, -math.inf):
        raise NodeError(f"the {op} is too large for a number", "REDUCE_OVERFLOW")
    if op in ("sum", "count"):
        return total
    if not count:
        return None
    return {"min": least, "max": greatest, "mean": total / count}[op]


def _kept(op: str, values: tuple[Any, ...]) -> Any:
    if op == "append":
        return list(values)
    merged: dict[str, Any] = {}
    for value in values:
        merged.update(value)
    return merged


def _opened(results: msgspec.Raw) -> tuple[list[Any], list[list[Any]]]:
    """The slots as users see them, and the values that each arrival left to be reduced."""
    values: list[list[Any]] = []
    return [_open(slot, values) for slot in msgspec.json.decode(results)], values


def _open(slot: Any, values: list[list[Any]]) -> Any:
    """An arrival's own result; several arrivals of one item are an object or a list of them."""
    if isinstance(slot, list):
        return [_open(part, values) for part in slot]
    if not isinstance(slot, dict):
        return slot
    if "$values" in slot:
        values.append(slot["$values"])
        return slot["$collected"]
    return {name: _open(part, values) for name, part in slot.items()}
