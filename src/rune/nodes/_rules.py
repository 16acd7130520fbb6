"""Operators as rules write them."""

from __future__ import annotations

from typing import Any

from rune.core.expressions import COMPARISONS, compare, suggest

__all__ = ["check_operator", "holds"]

_PHRASES = {
    "is equal to": "eq",
    "is not equal to": "neq",
    "is greater than": "gt",
    "is less than": "lt",
    "is greater than or equal to": "gte",
    "is less than or equal to": "lte",
}


def check_operator(operator: str, *others: str) -> None:
    """Raise ValueError unless it is an operator, or one of the `others`."""
    name = _name(operator)
    if name not in COMPARISONS and name not in others:
        meant = suggest(name, [*COMPARISONS, *others])
        hint = f"did you mean {meant!r}?" if meant else "there are eq, neq, gt, gte, lt, lte, contains, in, …"
        raise ValueError(f"there is no operator {operator!r}; {hint}")


def holds(operator: str, left: Any, right: Any) -> bool:
    """Does the comparison hold?"""
    return compare(_name(operator), left, right)


def _name(operator: str) -> str:
    name = operator.strip()
    return name if name in COMPARISONS else _PHRASES.get(name.lower(), name.lower())
