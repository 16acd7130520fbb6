"""Functions of arrays and objects."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError, ReferenceMissing
from rune.core.expressions.library.arguments import array, integer, mapping, text
from rune.core.expressions.library.registry import MISSING, function
from rune.core.expressions.ordering import contains as has
from rune.core.expressions.ordering import order_of
from rune.core.expressions.paths import dig, member
from rune.core.expressions.suggest import suggest
from rune.core.expressions.values import UNDEFINED, kind_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__ = ["attribute_of", "identity_of"]


def attribute_of(element: Any, attribute: Any, caller: str, default: Any = UNDEFINED) -> Any:
    """Return what an element has under a dotted path; without a default, it must be there."""
    path = text(attribute, caller)
    found = dig(element, path)
    if found is not UNDEFINED:
        return found
    if default is not UNDEFINED:
        return default
    near = suggest(path, element) if isinstance(element, dict) else None
    raise ReferenceMissing(
        f"`{caller}`: {kind_of(element)} has no '{path[:80]}'",
        path=path,
        hint=f"did you mean '{near}'?" if near else None,
    )


def identity_of(value: Any, budget: Budget) -> Any:
    """Return something hashable that equal values, and no others, have in common."""
    kind = type(value)
    if kind is str:
        budget.scan(len(value))
        return value
    if kind is list:
        budget.collect(len(value))
        return (4, *[identity_of(element, budget) for element in value])
    if kind is dict:
        budget.collect(len(value))
        return (5, frozenset((key, identity_of(element, budget)) for key, element in value.items()))
    return (kind is bool, value)  # True and 1 are equal in Python


@function("count", "len")
def length(value: Any) -> int:
    """The number of elements, keys or characters."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise ExpressionTypeError(f"`length` needs a string, an array or an object, not {kind_of(value)}")


@function()
def first(value: Any) -> Any:
    """The first element or character; of nothing, null."""
    return _at(value, 0, "first")


@function()
def last(value: Any) -> Any:
    """The last element or character; of nothing, null."""
    return _at(value, -1, "last")


def _at(value: Any, index: int, caller: str) -> Any:
    if type(value) is str or isinstance(value, list):
        return value[index] if value else UNDEFINED
    raise ExpressionTypeError(f"`{caller}` needs an array or a string, not {kind_of(value)}")


@function()
def slice_(budget: Budget, value: Any, start: Any = None, stop: Any = None) -> Any:
    """The elements or characters from `start` up to, not including, `stop`; below zero, from the end."""
    if type(value) is not str and not isinstance(value, list):
        raise ExpressionTypeError(f"`slice` needs an array or a string, not {kind_of(value)}")
    begin = None if start is None else integer(start, "slice")
    end = None if stop is None else integer(stop, "slice")
    part = value[begin:end]
    budget.grow(len(part) if type(part) is str else 8 * len(part))
    return part


@function()
def reverse(budget: Budget, value: Any) -> Any:
    """The elements or characters in the opposite order."""
    if type(value) is not str and not isinstance(value, list):
        raise ExpressionTypeError(f"`reverse` needs an array or a string, not {kind_of(value)}")
    budget.collect(len(value))
    return value[::-1]


@function()
def sort(budget: Budget, value: Any, attribute: Any = None, reverse: Any = False) -> list[Any]:
    """The elements in order (null, booleans, numbers, strings, arrays, objects), by an attribute if given."""
    members = array(value, "sort")
    budget.collect(len(members))
    budget.spend(len(members))
    if attribute is None:
        return sorted(members, key=lambda element: order_of(element, budget), reverse=bool(reverse))
    path = text(attribute, "sort")
    return sorted(
        members, key=lambda element: order_of(dig(element, path), budget), reverse=bool(reverse)
    )  # what has no such attribute sorts as null


@function()
def unique(budget: Budget, value: Any, attribute: Any = None) -> list[Any]:
    """The elements without repetition, by an attribute if given; the first of equals stays."""
    members = array(value, "unique")
    budget.collect(len(members))
    kept: dict[Any, Any] = {}
    for element in members:
        key = element if attribute is None else attribute_of(element, attribute, "unique")
        kept.setdefault(identity_of(key, budget), element)
    return list(kept.values())


@function()
def difference(budget: Budget, value: Any, other: Any) -> list[Any]:
    """The elements that another array does not have."""
    return _common(budget, value, other, "difference", False)


@function()
def intersection(budget: Budget, value: Any, other: Any) -> list[Any]:
    """The elements that another array has, too."""
    return _common(budget, value, other, "intersection", True)


def _common(budget: Budget, value: Any, other: Any, caller: str, wanted: bool) -> list[Any]:
    members, others = array(value, caller), array(other, caller)
    budget.collect(len(members) + len(others))
    known = {identity_of(element, budget) for element in others}
    return [element for element in members if (identity_of(element, budget) in known) is wanted]


@function()
def flatten(budget: Budget, value: Any, depth: Any = None) -> list[Any]:
    """The elements of inner arrays in one array: of all depths, or of so many."""
    levels = 2**31 if depth is None else integer(depth, "flatten", low=0)
    flat: list[Any] = []
    pending = [(iter(array(value, "flatten")), levels)]
    budget.collect(len(value))
    while pending:
        members, left = pending[-1]
        for element in members:
            if isinstance(element, list) and left > 0:
                budget.collect(len(element) + 1)
                pending.append((iter(element), left - 1))
                break
            flat.append(element)
        else:
            pending.pop()
    return flat


@function()
def zip_(budget: Budget, value: Any, *others: Any) -> list[Any]:
    """Arrays of the first elements, the second ones and so on, as far as the shortest array goes."""
    arrays = [array(each, "zip") for each in (value, *others)]
    budget.collect(min(len(each) for each in arrays) * (len(arrays) + 1))
    return [list(each) for each in zip(*arrays, strict=False)]


@function()
def chunk(budget: Budget, value: Any, size: Any) -> list[Any]:
    """The elements in arrays of a size; the last one may be shorter."""
    members, width = array(value, "chunk"), integer(size, "chunk", low=1)
    budget.collect(2 * len(members))
    return [members[start : start + width] for start in range(0, len(members), width)]


@function("list")
def array_(budget: Budget, value: Any) -> list[Any]:
    """The value as an array: an object's keys, a string's characters, nothing for null, else one element."""
    if value is None:
        return []
    if isinstance(value, str | list | dict):
        budget.collect(len(value))
        return list(value)
    return [value]


@function()
def contains(budget: Budget, value: Any, element: Any) -> bool:
    """Whether an array has the element, an object the key, or a string the part."""
    return has(value, element, budget)


@function()
def keys(budget: Budget, value: Any) -> list[str]:
    """The keys of an object."""
    budget.collect(len(mapping(value, "keys")))
    return list(value)


@function()
def values(budget: Budget, value: Any) -> list[Any]:
    """The values of an object."""
    budget.collect(len(mapping(value, "values")))
    return list(value.values())


@function()
def items(budget: Budget, value: Any) -> list[list[Any]]:
    """The keys and values of an object, as arrays of two."""
    budget.collect(3 * len(mapping(value, "items")))
    return [list(pair) for pair in value.items()]


@function("object")
def dict_(budget: Budget, value: Any) -> dict[str, Any]:
    """The object of an array of keys and values, the opposite of items; an object stays as it is."""
    if isinstance(value, dict):
        return value
    made = {}
    budget.collect(2 * len(array(value, "dict")))
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ExpressionTypeError("`dict` needs arrays of two: a key and a value")
        made[text_of(pair[0], budget)] = pair[1]
    return made


@function()
def get(value: Any, key: Any, default: Any = MISSING) -> Any:
    """What is under a key or at an index, or the default; null if there is neither."""
    found = member(value, key)
    return default if found is UNDEFINED else found


@function()
def merge(budget: Budget, value: Any, *others: Any, deep: Any = False) -> dict[str, Any]:
    """One object of several, where later ones win; with `deep`, inner objects are merged too."""
    merged = dict(mapping(value, "merge"))
    budget.collect(len(merged))
    for other in others:
        merged = _merged(budget, merged, mapping(other, "merge"), bool(deep))
    return merged


def _merged(budget: Budget, left: dict[str, Any], right: dict[str, Any], deep: bool) -> dict[str, Any]:
    budget.collect(len(left) + len(right))
    merged = {**left, **right}
    if deep:
        for key, ours in left.items():
            theirs = right.get(key)
            if isinstance(ours, dict) and isinstance(theirs, dict):
                merged[key] = _merged(budget, ours, theirs, True)
    return merged


@function()
def pick(budget: Budget, value: Any, *names: Any) -> dict[str, Any]:
    """The object with these keys only."""
    wanted = _names(names, "pick")
    budget.collect(len(mapping(value, "pick")))
    return {key: element for key, element in value.items() if key in wanted}


@function()
def omit(budget: Budget, value: Any, *names: Any) -> dict[str, Any]:
    """The object without these keys."""
    unwanted = _names(names, "omit")
    budget.collect(len(mapping(value, "omit")))
    return {key: element for key, element in value.items() if key not in unwanted}


def _names(names: tuple[Any, ...], caller: str) -> set[str]:
    """Return the keys, given one by one or as one array."""
    if len(names) == 1 and isinstance(names[0], list):
        names = tuple(names[0])
    return {text(name, caller) for name in names}


@function()
def group_by(budget: Budget, value: Any, attribute: Any) -> dict[str, list[Any]]:
    """An object of the elements that have an attribute in common, under its value as text."""
    members = array(value, "group_by")
    budget.collect(2 * len(members))
    groups: dict[str, list[Any]] = {}
    for element in members:
        key = text_of(attribute_of(element, attribute, "group_by"), budget)
        groups.setdefault(key, []).append(element)
    return groups
