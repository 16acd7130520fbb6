"""Functions that turn one kind of value into another, and those for what is not there."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError, LimitExceeded
from rune.core.expressions.library.arguments import integer, text
from rune.core.expressions.library.registry import MISSING, function
from rune.core.expressions.operators import checked
from rune.core.expressions.values import UNDEFINED, is_number, kind_of, text_of, to_json, truth, utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []

_LONGEST_NUMBER = 400
_TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
_FALSE_WORDS = frozenset({"false", "no", "off", "none", "null", "0", ""})


@function("d", lazy=True)
def default(value: Any, fallback: Any = "", falsy: Any = False) -> Any:
    """The value, or the fallback if it does not exist; with `falsy`, also if it counts as false."""
    return fallback if value is UNDEFINED or (falsy and not value) else value


@function(lazy=True)
def coalesce(*values: Any) -> Any:
    """The first value that exists and is not null."""
    return next((value for value in values if value is not None and value is not UNDEFINED), None)


@function("str")
def string(budget: Budget, value: Any) -> str:
    """The value as text: null as nothing, arrays and objects as JSON."""
    return text_of(value, budget)


@function()
def int_(value: Any, default: Any = MISSING) -> Any:
    """The value as an integer, cut towards zero; the default if it is none."""
    found = _number(value)
    if found is None:
        return _otherwise(value, default, "int", "an integer")
    return checked(int(found))


@function()
def float_(value: Any, default: Any = MISSING) -> Any:
    """The value as a number with a fraction; the default if it is none."""
    found = _number(value)
    if found is None:
        return _otherwise(value, default, "float", "a number")
    try:
        return float(found)
    except OverflowError:
        raise LimitExceeded("the integer is too large for a fraction", bound="integer") from None


def _number(value: Any) -> Any:
    """Return the number that a value is or writes, if it does."""
    if is_number(value):
        return value
    if type(value) is bool:
        return int(value)
    if type(value) is not str or "_" in value or len(value) > _LONGEST_NUMBER:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        found = float(value)
    except ValueError:
        return None
    return found if found - found == 0 else None


def _otherwise(value: Any, default: Any, caller: str, wanted: str) -> Any:
    if default is not UNDEFINED:
        return default
    shown = repr(value[:40]) if type(value) is str else kind_of(value)
    raise ExpressionTypeError(
        f"`{caller}`: {shown} is not {wanted}", hint=f"give a default, as in {caller}(0)"
    )


@function("boolean")
def bool_(budget: Budget, value: Any) -> bool:
    """The value as a boolean; "true", "yes", "on", "1" and their opposites are understood."""
    if type(value) is not str:
        return truth(value)
    budget.scan(len(value))
    word = value.strip().lower()
    if word in _TRUE_WORDS or word in _FALSE_WORDS:
        return word in _TRUE_WORDS
    raise ExpressionTypeError(f"`bool`: {value[:40]!r} is neither true nor false")


@function()
def type_(value: Any) -> str:
    """The kind of a value: null, boolean, number, string, array or object."""
    return kind_of(value)


@function()
def tojson(budget: Budget, value: Any, indent: Any = 0) -> str:
    """The value as JSON text, on several lines if an indent is given."""
    spaces = integer(indent, "tojson", low=0, high=8)
    written = to_json(value, budget)
    if not spaces:
        return written
    # An upper bound: as if each line stood at the deepest level.
    lines = written.count(",") + 2 * (written.count("[") + written.count("{"))
    budget.grow(lines * (_depth(value) * spaces + 1))
    return to_json(value, budget, indent=spaces)


def _depth(value: Any) -> int:
    """Return how deep arrays and objects are nested in a value."""
    deepest, level = 0, [value]
    while level := [each for each in level if isinstance(each, list | dict)]:
        deepest += 1
        level = [member for each in level for member in (each.values() if isinstance(each, dict) else each)]
    return deepest


@function()
def fromjson(budget: Budget, value: Any) -> Any:
    """The value that a JSON text writes."""
    import msgspec

    encoded = utf8(text(value, "fromjson"))
    budget.grow(len(encoded))
    budget.spend(len(encoded) // 8)
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.DecodeError, ValueError) as error:
        raise ExpressionTypeError(f"`fromjson`: {error}") from None
