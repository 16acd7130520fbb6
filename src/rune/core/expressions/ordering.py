"""Equality, order and membership of JSON values."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError
from rune.core.expressions.limits import Budget, too_deep
from rune.core.expressions.values import is_number, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Relation = Callable[[Any, Any, Budget], bool]

__all__ = [
    "aligned",
    "contains",
    "contains_aligned",
    "equal",
    "greater",
    "greater_or_equal",
    "less",
    "less_or_equal",
    "order_of",
    "sort_key",
    "unequal",
]

_FEW = 16  # a search of so few elements is not charged
_LONGEST_NUMBER = 64
_NUMBER_CHARACTERS = frozenset("0123456789+-.eE")


def equal(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether two values are the same JSON; values of different kinds are not."""
    kind = type(left)
    if kind is str:
        budget.scan(len(left))
        return bool(left == right)
    if left is right:
        return True
    if (kind is int or kind is float) and is_number(right):
        return bool(left == right)
    if kind is list and type(right) is list:
        return _equal_arrays(left, right, budget)
    if kind is dict and type(right) is dict:
        return _equal_objects(left, right, budget)
    return kind is type(right) and bool(left == right)


def _equal_arrays(left: list[Any], right: list[Any], budget: Budget) -> bool:
    if len(left) != len(right):
        return False
    budget.spend(len(left))
    return all(equal(a, b, budget) for a, b in zip(left, right, strict=True))


def _equal_objects(left: dict[str, Any], right: dict[str, Any], budget: Budget) -> bool:
    if left.keys() != right.keys():
        return False
    budget.spend(len(left))
    return all(equal(value, right[key], budget) for key, value in left.items())


def unequal(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether two values differ."""
    return not equal(left, right, budget)


def _comparable(left: Any, right: Any, budget: Budget) -> bool:
    kind, other = type(left), type(right)
    if (kind is int or kind is float) and (other is int or other is float):
        return True
    if kind is str and other is str:
        budget.scan(len(left))
        return True
    raise ExpressionTypeError(
        f"cannot order {kind_of(left)} and {kind_of(right)}",
        hint="convert with int(), float() or string()" if str in (kind, other) else None,
    )


def less(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether left comes before right: numbers or strings."""
    return _comparable(left, right, budget) and bool(left < right)


def less_or_equal(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether left does not come after right."""
    return _comparable(left, right, budget) and bool(left <= right)


def greater(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether left comes after right."""
    return _comparable(left, right, budget) and bool(left > right)


def greater_or_equal(left: Any, right: Any, budget: Budget) -> bool:
    """Return whether left does not come before right."""
    return _comparable(left, right, budget) and bool(left >= right)


def contains(container: Any, element: Any, budget: Budget, same: Relation = equal) -> bool:
    """Return whether an array has the element, an object the key, or a string the part."""
    if isinstance(container, list):
        if len(container) > _FEW:
            budget.spend(len(container))
        for member in container:  # noqa: SIM110 - twice as fast as any()
            if same(element, member, budget):
                return True
        return False
    if isinstance(container, dict):
        return type(element) is str and element in container
    if type(container) is str:
        if type(element) is str:
            budget.scan(len(container))
            return element in container
        raise ExpressionTypeError(
            f"a string can contain a string only, not {kind_of(element)}", hint="convert with string()"
        )
    raise ExpressionTypeError(f"{kind_of(container)} cannot contain anything")


def aligned(relation: Relation) -> Relation:
    """Return the relation that takes a numeric string for a number when the other side is one."""

    def run(left: Any, right: Any, budget: Budget) -> bool:
        if type(left) is str and is_number(right):
            left = _numeric(left)
        elif type(right) is str and is_number(left):
            right = _numeric(right)
        return relation(left, right, budget)

    return run


_equal_aligned = aligned(equal)


def contains_aligned(container: Any, element: Any, budget: Budget) -> bool:
    """Return whether the container has the element, numeric strings taken for numbers."""
    return contains(container, element, budget, _equal_aligned)


def _numeric(text: str) -> Any:
    """Return the number that a text writes, or the text itself."""
    stripped = text.strip()
    if not stripped or len(stripped) > _LONGEST_NUMBER or not _NUMBER_CHARACTERS.issuperset(stripped):
        return text
    try:
        return int(stripped)
    except ValueError:
        pass
    try:
        return float(stripped)
    except ValueError:
        return text


def sort_key(value: Any) -> Any:
    """Return a key under which all JSON values sort: null < boolean < number < string < array < object."""
    try:
        return order_of(value, Budget())
    except RecursionError:
        raise too_deep("the value") from None


def order_of(value: Any, budget: Budget) -> Any:
    """Do as `sort_key` does, within the budget of an evaluation."""
    kind = type(value)
    if kind is int or kind is float:
        return (2, value)
    if kind is str:
        budget.scan(16 * len(value))  # a sort looks at it again and again
        return (3, value)
    if kind is bool:
        return (1, value)
    if isinstance(value, list):
        budget.collect(len(value))
        return (4, [order_of(member, budget) for member in value])
    if isinstance(value, dict):
        budget.collect(len(value))
        return (5, [(key, order_of(value[key], budget)) for key in sorted(value)])
    return (0, 0)
