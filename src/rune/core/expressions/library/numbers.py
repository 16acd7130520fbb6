"""Functions of numbers."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError
from rune.core.expressions.library.arguments import array, integer, number
from rune.core.expressions.library.collections import attribute_of
from rune.core.expressions.library.registry import function
from rune.core.expressions.operators import ARITHMETIC, checked
from rune.core.expressions.ordering import less
from rune.core.expressions.values import UNDEFINED, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []

_STEPS_OF_ROUND = 10
_add, _divide = ARITHMETIC["+"], ARITHMETIC["/"]


@function()
def abs_(value: Any) -> Any:
    """The number without its sign."""
    found = number(value, "abs")
    return -found if found < 0 else found


@function()
def ceil(value: Any) -> Any:
    """The smallest integer that is not less."""
    return checked(-int(-number(value, "ceil") // 1))


@function()
def floor(value: Any) -> Any:
    """The largest integer that is not greater."""
    return checked(int(number(value, "floor") // 1))


@function()
def round_(budget: Budget, value: Any, digits: Any = 0) -> Any:
    """The number rounded to digits after the point, halves away from zero; without digits, an integer."""
    budget.spend(_STEPS_OF_ROUND)
    from decimal import ROUND_HALF_UP, Context, Decimal  # its import is slow

    found, places = number(value, "round"), integer(digits, "round", low=-30, high=30)
    if type(found) is int and places >= 0:
        return found
    # As written, so that 2.675 becomes 2.68 although the float is a little less.
    exact = Decimal(found if type(found) is int else repr(found))
    rounded = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=Context(prec=400))
    return checked(int(rounded) if places <= 0 else float(rounded))


@function()
def sum_(budget: Budget, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    """The sum of the numbers, or of an attribute of each element."""
    total = number(start, "sum")
    for found in _numbers(budget, value, attribute, "sum"):
        total = _add(total, found, budget)
    return total


@function("mean")
def avg(budget: Budget, value: Any, attribute: Any = None) -> Any:
    """The mean of the numbers, or of an attribute of each element; of none, null."""
    found = _numbers(budget, value, attribute, "avg")
    if not found:
        return UNDEFINED
    total: Any = 0
    for each in found:
        total = _add(total, each, budget)
    return _divide(total, len(found), budget)


def _numbers(budget: Budget, value: Any, attribute: Any, caller: str) -> list[Any]:
    members = array(value, caller)
    budget.spend(len(members))
    if attribute is not None:
        members = [attribute_of(member, attribute, caller) for member in members]
    for index, member in enumerate(members):
        if type(member) is not int and type(member) is not float:
            raise ExpressionTypeError(f"`{caller}` needs numbers, but item {index} is {kind_of(member)}")
    return members


@function()
def min_(budget: Budget, value: Any, *more: Any, attribute: Any = None) -> Any:
    """The least of the elements, by an attribute if given, or of several values; of none, null."""
    return _extreme(budget, value, more, attribute, "min")


@function()
def max_(budget: Budget, value: Any, *more: Any, attribute: Any = None) -> Any:
    """The greatest of the elements, by an attribute if given, or of several values; of none, null."""
    return _extreme(budget, value, more, attribute, "max")


def _extreme(budget: Budget, value: Any, more: tuple[Any, ...], attribute: Any, caller: str) -> Any:
    members = [value, *more] if more else array(value, caller)
    budget.spend(len(members))
    best: Any = UNDEFINED
    best_rank: Any = UNDEFINED
    for member in members:
        rank = member if attribute is None else attribute_of(member, attribute, caller)
        if best_rank is UNDEFINED:
            less(rank, rank, budget)  # a single value must be of a kind that has an order, too
            best, best_rank = member, rank
        elif less(rank, best_rank, budget) if caller == "min" else less(best_rank, rank, budget):
            best, best_rank = member, rank
    return best


@function()
def range_(budget: Budget, start: Any, stop: Any = None, step: Any = 1) -> list[int]:
    """The integers from `start` up to but not including `stop`; with one argument, from zero."""
    first, last = (0, start) if stop is None else (start, stop)
    stride = integer(step, "range")
    if stride == 0:
        raise ExpressionTypeError("`range` needs a step that is not zero")
    numbers = range(integer(first, "range"), integer(last, "range"), stride)
    # len() of a range fails beyond 2^63.
    budget.collect(max((numbers.stop - numbers.start) // stride, 0) + 1)
    return list(numbers)
