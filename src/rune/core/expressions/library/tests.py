"""The tests that follow `is`, and that select and its kin apply."""

from __future__ import annotations

from rune.core.expressions import ordering
from rune.core.expressions.library import patterns, text
from rune.core.expressions.library.arguments import integer
from rune.core.expressions.library.registry import test
from rune.core.expressions.values import UNDEFINED, is_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []


@test()
def is_defined(value: Any) -> bool:
    """Whether it exists."""
    return value is not UNDEFINED


@test()
def is_undefined(value: Any) -> bool:
    """Whether it does not exist."""
    return value is UNDEFINED


@test("null", "None")
def is_none(value: Any) -> bool:
    """Whether it is null."""
    return value is None


@test("True")
def is_true(value: Any) -> bool:
    """Whether it is true itself."""
    return value is True


@test("False")
def is_false(value: Any) -> bool:
    """Whether it is false itself."""
    return value is False


@test("bool")
def is_boolean(value: Any) -> bool:
    """Whether it is true or false."""
    return type(value) is bool


@test()
def is_number_(value: Any) -> bool:
    """Whether it is a number."""
    return is_number(value)


@test("int")
def is_integer(value: Any) -> bool:
    """Whether it is a number without a fraction part."""
    return type(value) is int


@test()
def is_float(value: Any) -> bool:
    """Whether it is a number with a fraction part."""
    return type(value) is float


@test("text")
def is_string(value: Any) -> bool:
    """Whether it is a string."""
    return type(value) is str


@test("array", "sequence")
def is_list(value: Any) -> bool:
    """Whether it is an array."""
    return isinstance(value, list)


@test("object", "mapping", "dict")
def is_map(value: Any) -> bool:
    """Whether it is an object."""
    return isinstance(value, dict)


@test()
def is_empty(value: Any) -> bool:
    """Whether it is null or an array, object or string with nothing in it."""
    return value is None or (isinstance(value, str | list | dict) and not value)


@test()
def is_even(value: Any) -> bool:
    """Whether the integer can be halved."""
    return integer(value, "even") % 2 == 0


@test()
def is_odd(value: Any) -> bool:
    """Whether the integer cannot be halved."""
    return integer(value, "odd") % 2 == 1


@test("divisible_by")
def is_divisibleby(value: Any, divisor: Any) -> bool:
    """Whether the integer is a multiple of another."""
    by = integer(divisor, "divisibleby")
    return by != 0 and integer(value, "divisibleby") % by == 0


@test("==", "equalto", "equals")
def is_eq(budget: Budget, value: Any, other: Any) -> bool:
    """Whether both are the same value."""
    return ordering.equal(value, other, budget)


@test("!=", "neq")
def is_ne(budget: Budget, value: Any, other: Any) -> bool:
    """Whether they differ."""
    return not ordering.equal(value, other, budget)


@test("<")
def is_lt(budget: Budget, value: Any, other: Any) -> bool:
    """Whether it is less than the other."""
    return ordering.less(value, other, budget)


@test("<=", "lte")
def is_le(budget: Budget, value: Any, other: Any) -> bool:
    """Whether it is the other or less."""
    return ordering.less_or_equal(value, other, budget)


@test(">")
def is_gt(budget: Budget, value: Any, other: Any) -> bool:
    """Whether it is greater than the other."""
    return ordering.greater(value, other, budget)


@test(">=", "gte")
def is_ge(budget: Budget, value: Any, other: Any) -> bool:
    """Whether it is the other or greater."""
    return ordering.greater_or_equal(value, other, budget)


@test()
def is_in(budget: Budget, value: Any, container: Any) -> bool:
    """Whether the other has it as an element, key or part."""
    return ordering.contains(container, value, budget)


@test()
def is_contains(budget: Budget, value: Any, element: Any) -> bool:
    """Whether it has the other as an element, key or part."""
    return ordering.contains(value, element, budget)


@test()
def is_startswith(budget: Budget, value: Any, prefix: Any) -> bool:
    """Whether the string begins with the other."""
    return text.startswith(budget, value, prefix)


@test()
def is_endswith(budget: Budget, value: Any, suffix: Any) -> bool:
    """Whether the string ends with the other."""
    return text.endswith(budget, value, suffix)


@test("regex")
def is_matches(budget: Budget, value: Any, pattern: Any) -> bool:
    """Whether a regular expression is found in the string."""
    return patterns.regex_match(budget, value, pattern)
