"""How long an expression takes, once compiled."""

from __future__ import annotations

from timeit import Timer
from typing import Any

from rune.core.expressions import compile_expression

__all__ = ["TYPICAL", "microseconds"]

TYPICAL = "$order.price * $order.quantity > 100"


class _Names:
    """A scope of plain values."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def lookup(self, name: str) -> Any:
        """The value of a name."""
        return self._values[name]

    def names(self) -> list[str]:
        """Every name."""
        return list(self._values)


def microseconds(source: str = TYPICAL) -> float:
    """Microseconds of one evaluation, the best of several rounds."""
    expression = compile_expression(source)
    scope = _Names({"$order": {"price": 12.5, "quantity": 9}})
    if expression.evaluate(scope) is not True:
        raise SystemExit(f"{source} is wrong")
    timer = Timer(lambda: expression.evaluate(scope))
    rounds = 20_000
    return min(timer.repeat(5, rounds)) / rounds * 1e6
