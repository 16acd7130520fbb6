"""Arithmetic, and the table of operators."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError, LimitExceeded
from rune.core.expressions.limits import MAX_INTEGER, SMALL, Budget
from rune.core.expressions.ordering import (
    aligned,
    contains,
    contains_aligned,
    equal,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
    unequal,
)
from rune.core.expressions.values import is_number, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Operator = Callable[[Any, Any, Budget], Any]

__all__ = ["ARITHMETIC", "RELATIONS", "RELATIONS_ALIGNED", "checked", "negate", "positive"]


def checked(result: Any) -> Any:
    """Return a number if JSON can hold it and it is within bounds."""
    if -MAX_INTEGER < result < MAX_INTEGER:
        return result
    if type(result) is int:
        raise LimitExceeded("the integer is larger than 2^256", bound="integer")
    if result - result != 0:
        raise _not_json()
    return result


def _not_json() -> ExpressionTypeError:
    return ExpressionTypeError("the result is infinite or not a number, which JSON cannot hold")


def _unfit(symbol: str, left: Any, right: Any) -> ExpressionTypeError:
    hint = None
    if str in (type(left), type(right)):
        if symbol == "+":
            hint = "use `~` to join values as text"
        elif is_number(left) or is_number(right):
            hint = "convert with int() or float()"
    return ExpressionTypeError(f"`{symbol}` does not take {kind_of(left)} and {kind_of(right)}", hint=hint)


def add(left: Any, right: Any, budget: Budget) -> Any:
    """Add numbers, or join two strings or two arrays."""
    kind, other = type(left), type(right)
    if (kind is int or kind is float) and (other is int or other is float):
        try:
            return checked(left + right)
        except OverflowError:
            raise _not_json() from None
    if kind is not other or (kind is not str and kind is not list):
        raise _unfit("+", left, right)
    size = len(left) + len(right)
    if kind is list:
        budget.collect(size)
    elif size > SMALL:
        budget.grow(size)
    return left + right


def subtract(left: Any, right: Any, budget: Budget) -> Any:
    """Subtract numbers."""
    if not (is_number(left) and is_number(right)):
        raise _unfit("-", left, right)
    try:
        return checked(left - right)
    except OverflowError:
        raise _not_json() from None


def multiply(left: Any, right: Any, budget: Budget) -> Any:
    """Multiply numbers, or repeat a string."""
    if is_number(left) and is_number(right):
        try:
            return checked(left * right)
        except OverflowError:
            raise _not_json() from None
    if type(left) is int and type(right) is str:
        left, right = right, left
    if type(left) is not str or type(right) is not int:
        raise _unfit("*", left, right)
    budget.grow(len(left) * max(right, 0))
    return left * right


def _divisor(symbol: str, left: Any, right: Any) -> None:
    if not (is_number(left) and is_number(right)):
        raise _unfit(symbol, left, right)
    if right == 0:
        raise ExpressionTypeError(f"`{symbol}` by zero")


def divide(left: Any, right: Any, budget: Budget) -> Any:
    """Divide numbers; the result has a fraction."""
    _divisor("/", left, right)
    try:
        return checked(left / right)
    except OverflowError:
        raise _not_json() from None


def floor_divide(left: Any, right: Any, budget: Budget) -> Any:
    """Divide numbers and round down."""
    _divisor("//", left, right)
    try:
        return checked(left // right)
    except OverflowError:
        raise _not_json() from None


def modulo(left: Any, right: Any, budget: Budget) -> Any:
    """Return what is left over by a division, with the sign of the divisor."""
    _divisor("%", left, right)
    try:
        return checked(left % right)
    except OverflowError:
        raise _not_json() from None


def negate(value: Any) -> Any:
    """Return the number with the other sign."""
    if not is_number(value):
        raise ExpressionTypeError(f"`-` does not take {kind_of(value)}")
    return -value


def positive(value: Any) -> Any:
    """Return the number."""
    if not is_number(value):
        raise ExpressionTypeError(f"`+` does not take {kind_of(value)}")
    return value


def _within(element: Any, container: Any, budget: Budget) -> bool:
    return contains(container, element, budget)


def _within_aligned(element: Any, container: Any, budget: Budget) -> bool:
    return contains_aligned(container, element, budget)


def _without(element: Any, container: Any, budget: Budget) -> bool:
    return not contains(container, element, budget)


def _without_aligned(element: Any, container: Any, budget: Budget) -> bool:
    return not contains_aligned(container, element, budget)


ARITHMETIC: Mapping[str, Operator] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": floor_divide,
    "%": modulo,
}

_ORDER: Mapping[str, Operator] = {
    "==": equal,
    "!=": unequal,
    "<": less,
    "<=": less_or_equal,
    ">": greater,
    ">=": greater_or_equal,
}

RELATIONS: Mapping[str, Operator] = {**_ORDER, "in": _within, "not in": _without, "contains": contains}

RELATIONS_ALIGNED: Mapping[str, Operator] = {
    **{symbol: aligned(relation) for symbol, relation in _ORDER.items()},
    "in": _within_aligned,
    "not in": _without_aligned,
    "contains": contains_aligned,
}
