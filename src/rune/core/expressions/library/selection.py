"""Functions that apply a function or a test, given by name, to each element."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionError, ExpressionTypeError
from rune.core.expressions.library.arguments import array, text
from rune.core.expressions.library.collections import attribute_of
from rune.core.expressions.library.registry import MISSING, function
from rune.core.expressions.paths import dig
from rune.core.expressions.values import UNDEFINED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rune.core.expressions.library.registry import Function
    from rune.core.expressions.limits import Budget

__all__: list[str] = []

# The compiler puts the function or test itself in the place of its name, in parameters called so.


def _each(members: list[Any], apply: Callable[[Any], Any]) -> list[Any]:
    """Apply to each; an error says at which element."""
    results = []
    try:
        for member in members:
            results.append(apply(member))
    except ExpressionError as error:
        error.message = f"item {len(results)}: {error.message}"
        raise
    return results


@function()
def map_(
    budget: Budget,
    value: Any,
    function: Function | None = None,
    *arguments: Any,
    attribute: Any = None,
    default: Any = MISSING,
) -> list[Any]:
    """A function applied to each element, as in map('upper'), or an attribute of each."""
    members = array(value, "map")
    budget.collect(len(members))
    if attribute is not None:
        members = _each(members, lambda member: attribute_of(member, attribute, "map", default))
    elif function is None:
        raise ExpressionTypeError("`map` needs the name of a function or an attribute")
    if function is None:
        return members
    return _each(members, lambda member: function.invoke(budget, member, *arguments))


def _passing(
    budget: Budget,
    members: list[Any],
    test: Function | None,
    arguments: tuple[Any, ...],
    path: str | None = None,
) -> list[bool]:
    budget.collect(len(members))

    def passes(member: Any) -> bool:
        value = member if path is None else dig(member, path)
        if test is None:
            return bool(value)
        if value is UNDEFINED and test.name not in ("defined", "undefined"):
            value = None
        return bool(test.invoke(budget, value, *arguments))

    return _each(members, passes)


def _kept(members: list[Any], passing: list[bool], wanted: bool) -> list[Any]:
    return [member for member, passes in zip(members, passing, strict=True) if passes is wanted]


@function()
def select(budget: Budget, value: Any, test: Function | None = None, *arguments: Any) -> list[Any]:
    """The elements that pass a test, as in select('>', 3), or count as true."""
    members = array(value, "select")
    return _kept(members, _passing(budget, members, test, arguments), True)


@function()
def reject(budget: Budget, value: Any, test: Function | None = None, *arguments: Any) -> list[Any]:
    """The elements that do not pass a test."""
    members = array(value, "reject")
    return _kept(members, _passing(budget, members, test, arguments), False)


@function()
def selectattr(
    budget: Budget, value: Any, attribute: Any, test: Function | None = None, *arguments: Any
) -> list[Any]:
    """The elements with an attribute that passes a test, as in selectattr('age', '>=', 18)."""
    members, path = array(value, "selectattr"), text(attribute, "selectattr")
    return _kept(members, _passing(budget, members, test, arguments, path), True)


@function()
def rejectattr(
    budget: Budget, value: Any, attribute: Any, test: Function | None = None, *arguments: Any
) -> list[Any]:
    """The elements with an attribute that does not pass a test."""
    members, path = array(value, "rejectattr"), text(attribute, "rejectattr")
    return _kept(members, _passing(budget, members, test, arguments, path), False)


@function()
def any_(budget: Budget, value: Any, test: Function | None = None, *arguments: Any) -> bool:
    """Whether one element at least passes a test, or counts as true."""
    return any(_passing(budget, array(value, "any"), test, arguments))


@function()
def all_(budget: Budget, value: Any, test: Function | None = None, *arguments: Any) -> bool:
    """Whether every element passes a test, or counts as true."""
    return all(_passing(budget, array(value, "all"), test, arguments))
