"""JSON values: their kinds, their truth, their text."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError, LimitExceeded
from rune.core.expressions.limits import Budget, too_deep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "UNDEFINED",
    "Undefined",
    "is_number",
    "kind_of",
    "text_of",
    "to_json",
    "to_text",
    "truth",
    "utf8",
    "weigh",
]


class Undefined:
    """The type of UNDEFINED."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED = Undefined()
"""What a path to nothing gives where that is allowed; it never leaves an evaluation."""

_KINDS = {
    type(None): "null",
    Undefined: "undefined",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}

_FALSE_WORDS = frozenset({"", "0", "no", "none", "false"})


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type."""
    return _KINDS.get(type(value)) or f"value of type {type(value).__name__}"


def is_number(value: Any) -> bool:
    """Return whether it is a number; a boolean is not."""
    kind = type(value)
    return kind is int or kind is float


def truth(value: Any, *, words: bool = False) -> bool:
    """Return whether a value counts as true; with `words`, the texts "0", "no", "none" and "false" do not."""
    if words and type(value) is str:
        return value.strip().lower() not in _FALSE_WORDS
    return bool(value)


def to_text(value: Any) -> str:
    """Return a value as text: strings as they are, null as nothing, all else as JSON writes it."""
    try:
        return text_of(value, Budget())
    except RecursionError:
        raise too_deep("the value") from None


def text_of(value: Any, budget: Budget) -> str:
    """Do as `to_text` does, within the budget of an evaluation."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if value is None or value is UNDEFINED:
        return ""
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return _digits(value)
    if kind is float:
        written = repr(value)
        # JSON has neither infinities nor Python's spelling of an exponent.
        return written if "e" not in written and "n" not in written else to_json(value, budget)
    return to_json(value, budget)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        raise LimitExceeded("the integer is too long to write out", bound="integer") from None


def to_json(value: Any, budget: Budget, *, indent: int = 0, sort_keys: bool = False) -> str:
    """Return a value as JSON text."""
    import msgspec  # its import takes longer than a thousand evaluations

    weigh(value, budget)
    try:
        encoded = msgspec.json.encode(value, order="sorted" if sort_keys else None)
        if indent:
            encoded = msgspec.json.format(encoded, indent=indent)
        return encoded.decode()
    except (TypeError, ValueError, OverflowError) as error:
        raise ExpressionTypeError(f"{kind_of(value)} cannot be written as JSON: {error}") from None


def weigh(value: Any, budget: Budget) -> None:
    """Charge a value's whole size before it is written or copied: few references can stand for much data."""
    if type(value) is float:
        _finite(value)
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            budget.spend(len(current) + 1)
            size = sum(len(key) + 4 for key in current if type(key) is str)
            members: Any = current.values()
        elif isinstance(current, list):
            budget.spend(len(current) + 1)
            size = 2
            members = current
        else:
            size = len(current) if type(current) is str else 8
            members = ()
        for member in members:
            kind = type(member)
            if kind is str:
                size += len(member) + 3
            elif kind is dict or kind is list:
                stack.append(member)
            else:
                size += 8
                if kind is float:
                    _finite(member)
        budget.grow(size)


def _finite(number: float) -> None:
    if number - number != 0:
        raise ExpressionTypeError("JSON cannot hold a number that is infinite or not a number")


def utf8(text: str) -> bytes:
    """Return the text's bytes; half of a surrogate pair has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ExpressionTypeError(
            "the string holds half of a surrogate pair, which UTF-8 cannot hold"
        ) from None
