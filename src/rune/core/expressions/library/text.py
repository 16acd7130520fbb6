"""Functions of strings."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError
from rune.core.expressions.library.arguments import array, integer, text
from rune.core.expressions.library.registry import function
from rune.core.expressions.values import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []

_LONGEST_WIDTH = 1_000_000


@function()
def lower(budget: Budget, value: Any) -> str:
    """The string in lower case."""
    budget.grow(2 * len(text(value, "lower")))
    return text(value, "lower").lower()


@function()
def upper(budget: Budget, value: Any) -> str:
    """The string in upper case."""
    budget.grow(2 * len(text(value, "upper")))
    return text(value, "upper").upper()


@function()
def capitalize(budget: Budget, value: Any) -> str:
    """The string with its first letter in upper case and the rest in lower case."""
    budget.grow(2 * len(text(value, "capitalize")))
    return text(value, "capitalize").capitalize()


@function()
def title(budget: Budget, value: Any) -> str:
    """The string with the first letter of each word in upper case."""
    budget.grow(2 * len(text(value, "title")))
    return " ".join(word[:1].upper() + word[1:].lower() for word in text(value, "title").split(" "))


@function("strip")
def trim(budget: Budget, value: Any, characters: Any = None) -> str:
    """The string without white space, or the given characters, at both ends."""
    budget.grow(len(text(value, "trim")))
    return text(value, "trim").strip(None if characters is None else text(characters, "trim"))


@function()
def split(budget: Budget, value: Any, separator: Any = None, limit: Any = -1) -> list[str]:
    """The parts between the separators (white space if none is given), at most `limit` cuts."""
    whole = text(value, "split")
    cuts = integer(limit, "split")
    if separator is not None and text(separator, "split") == "":
        raise ExpressionTypeError(
            "`split` needs a separator that is not empty", hint="use list() for characters"
        )
    budget.collect((len(whole.split()) if separator is None else whole.count(separator)) + 1)
    budget.grow(len(whole))
    return whole.split(separator, max(cuts, -1))


@function()
def join(budget: Budget, value: Any, separator: Any = "", attribute: Any = None) -> str:
    """The elements (or an attribute of each) as one text, with the separator between them."""
    from rune.core.expressions.library.collections import attribute_of

    members = array(value, "join")
    budget.spend(len(members))
    budget.grow(len(text(separator, "join")) * len(members))
    pieces = []
    for member in members:
        piece = text_of(member if attribute is None else attribute_of(member, attribute, "join"), budget)
        budget.grow(len(piece))
        pieces.append(piece)
    return str(separator).join(pieces)


@function()
def replace(budget: Budget, value: Any, old: Any, new: Any, count: Any = -1) -> str:
    """The string with one text put in the place of another, everywhere or `count` times."""
    whole, part, other = text(value, "replace"), text(old, "replace"), text(new, "replace")
    times = integer(count, "replace")
    found = whole.count(part)
    budget.grow(len(whole) + max(len(other) - len(part), 0) * (found if times < 0 else min(found, times)))
    return whole.replace(part, other, max(times, -1))


@function()
def startswith(budget: Budget, value: Any, prefix: Any) -> bool:
    """Whether the string begins with another."""
    budget.scan(len(text(prefix, "startswith")))
    return text(value, "startswith").startswith(text(prefix, "startswith"))


@function()
def endswith(budget: Budget, value: Any, suffix: Any) -> bool:
    """Whether the string ends with another."""
    budget.scan(len(text(suffix, "endswith")))
    return text(value, "endswith").endswith(text(suffix, "endswith"))


@function()
def repeat(budget: Budget, value: Any, count: Any) -> str:
    """The string written several times."""
    times = max(integer(count, "repeat"), 0)
    budget.grow(len(text(value, "repeat")) * times)
    return text(value, "repeat") * times


@function()
def pad_start(budget: Budget, value: Any, width: Any, fill: Any = " ") -> str:
    """The value as text, filled up on the left to a width."""
    return _padding(budget, value, width, fill, "pad_start") + text_of(value, budget)


@function()
def pad_end(budget: Budget, value: Any, width: Any, fill: Any = " ") -> str:
    """The value as text, filled up on the right to a width."""
    return text_of(value, budget) + _padding(budget, value, width, fill, "pad_end")


def _padding(budget: Budget, value: Any, width: Any, fill: Any, caller: str) -> str:
    if len(text(fill, caller)) != 1:
        raise ExpressionTypeError(f"`{caller}` fills with one character")
    wide = integer(width, caller, low=0, high=_LONGEST_WIDTH)
    written = text_of(value, budget)
    budget.grow(max(wide, len(written)))
    return str(fill) * (wide - len(written))


@function()
def truncate(budget: Budget, value: Any, length: Any, end: Any = "…") -> str:
    """The string cut to a length, with a mark where it was cut."""
    whole, mark = text(value, "truncate"), text(end, "truncate")
    longest = integer(length, "truncate", low=0)
    if len(whole) <= longest:
        return whole
    budget.grow(longest + len(mark))
    return whole[: max(longest - len(mark), 0)] + mark
