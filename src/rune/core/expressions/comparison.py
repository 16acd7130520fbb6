"""Comparisons by name, as the rules of conditional, switch and filter write them."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionSyntaxError
from rune.core.expressions.library import TESTS
from rune.core.expressions.limits import Budget, too_deep
from rune.core.expressions.operators import RELATIONS_ALIGNED
from rune.core.expressions.suggest import suggest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Comparison = Callable[[Any, Any, Budget], bool]

__all__ = ["COMPARISONS", "compare"]


def _negated(comparison: Comparison) -> Comparison:
    return lambda left, right, budget: not comparison(left, right, budget)


def _tested(name: str) -> Comparison:
    test = TESTS[name]
    return lambda left, right, budget: bool(test.invoke(budget, left, right))


def _empty(left: Any, right: Any, budget: Budget) -> bool:
    return bool(TESTS["empty"].call(left))


_BY_SYMBOL: Mapping[str, Comparison] = RELATIONS_ALIGNED

COMPARISONS: Mapping[str, Comparison] = {
    "eq": _BY_SYMBOL["=="],
    "neq": _BY_SYMBOL["!="],
    "gt": _BY_SYMBOL[">"],
    "gte": _BY_SYMBOL[">="],
    "lt": _BY_SYMBOL["<"],
    "lte": _BY_SYMBOL["<="],
    "in": _BY_SYMBOL["in"],
    "not_in": _BY_SYMBOL["not in"],
    "contains": _BY_SYMBOL["contains"],
    "not_contains": _negated(_BY_SYMBOL["contains"]),
    "starts_with": _tested("startswith"),
    "ends_with": _tested("endswith"),
    "matches": _tested("matches"),
    "empty": _empty,
    "not_empty": _negated(_empty),
    **_BY_SYMBOL,
    "ne": _BY_SYMBOL["!="],
    "ge": _BY_SYMBOL[">="],
    "le": _BY_SYMBOL["<="],
    "equals": _BY_SYMBOL["=="],
    "not_equals": _BY_SYMBOL["!="],
    "startswith": _tested("startswith"),
    "endswith": _tested("endswith"),
    "regex": _tested("matches"),
}
"""The comparisons by name; `empty` and `not_empty` look at the left side only."""


def compare(op: str, left: Any, right: Any) -> bool:
    """Return whether a comparison holds; a numeric string counts as a number beside one."""
    comparison = COMPARISONS.get(op) if type(op) is str else None
    if comparison is None:
        near = suggest(str(op), COMPARISONS)
        raise ExpressionSyntaxError(
            f"there is no operator '{str(op)[:40]}'", hint=f"did you mean '{near}'?" if near else None
        )
    try:
        return comparison(left, right, Budget())
    except RecursionError:
        raise too_deep("the data") from None
