"""What library functions ask of their arguments."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError
from rune.core.expressions.values import is_number, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["array", "choice", "integer", "mapping", "number", "text"]


def _unfit(caller: str, wanted: str, value: Any) -> ExpressionTypeError:
    return ExpressionTypeError(f"`{caller}` needs {wanted}, not {kind_of(value)}")


def text(value: Any, caller: str) -> str:
    """Return the value if it is a string."""
    if type(value) is not str:
        raise _unfit(caller, "a string", value)
    return value


def number(value: Any, caller: str) -> Any:
    """Return the value if it is a number."""
    if not is_number(value):
        raise _unfit(caller, "a number", value)
    return value


def integer(value: Any, caller: str, *, low: int = -(2**63), high: int = 2**63) -> int:
    """Return the value if it is an integer within bounds; 3.0 is one."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise _unfit(caller, "an integer", value)
    if not low <= value <= high:
        raise ExpressionTypeError(f"`{caller}` needs an integer from {low} to {high}, not this one")
    return value


def array(value: Any, caller: str) -> list[Any]:
    """Return the value if it is an array."""
    if not isinstance(value, list):
        raise _unfit(caller, "an array", value)
    return value


def mapping(value: Any, caller: str) -> dict[str, Any]:
    """Return the value if it is an object."""
    if not isinstance(value, dict):
        raise _unfit(caller, "an object", value)
    return value


def choice(value: Any, caller: str, known: Mapping[str, Any]) -> Any:
    """Return what is known under a word."""
    if type(value) is not str or value not in known:
        raise ExpressionTypeError(
            f"`{caller}` does not know {repr(value[:40]) if type(value) is str else kind_of(value)}",
            hint="one of " + ", ".join(known),
        )
    return known[value]
