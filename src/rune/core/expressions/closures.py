"""The closures that code is made of."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionError
from rune.core.expressions.values import UNDEFINED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rune.core.expressions.library import Function
    from rune.core.expressions.limits import Budget
    from rune.core.expressions.paths import Run, Scope

__all__ = ["VARIES", "Code", "apply", "constant", "invoke", "located"]

VARIES: Any = object()
"""The `constant` of code whose value depends on the scope."""


class Code:
    """A compiled part: its closure, and its value if that is known already."""

    __slots__ = ("constant", "run")

    def __init__(self, run: Run, constant: Any = VARIES) -> None:
        self.run = run
        self.constant = constant


def constant(value: Any) -> Run:
    """Return the closure that gives a value known already."""
    return lambda scope, budget: value


def apply(operator: Callable[[Any, Any, Budget], Any], parts: list[Code], offset: int) -> Run:
    """Return the closure that applies an operator to two parts."""
    left, right, known = parts[0].run, parts[1].run, parts[1].constant

    def with_constant(scope: Scope, budget: Budget) -> Any:
        try:
            return operator(left(scope, budget), known, budget)
        except ExpressionError as error:
            error.locate(offset)
            raise

    def with_both(scope: Scope, budget: Budget) -> Any:
        try:
            return operator(left(scope, budget), right(scope, budget), budget)
        except ExpressionError as error:
            error.locate(offset)
            raise

    return with_both if known is VARIES else with_constant


def invoke(function: Function, arguments: list[Run], keywords: dict[str, Run], soft: bool) -> Run:
    """Return the closure that calls a function; softly, what is undefined stays so without a call."""
    call, metered = function.call, function.metered
    first = arguments[0] if arguments else None
    rest = arguments[1:]

    def run(scope: Scope, budget: Budget) -> Any:
        values = []
        if first is not None:
            value = first(scope, budget)
            if soft and value is UNDEFINED:
                return UNDEFINED
            values.append(value)
            for argument in rest:
                values.append(argument(scope, budget))
        named = {name: argument(scope, budget) for name, argument in keywords.items()} if keywords else {}
        return call(budget, *values, **named) if metered else call(*values, **named)

    return run


def located(run: Run, offset: int, soft: bool) -> Run:
    """Return the closure that says where an error is, and gives null for undefined unless soft."""

    def located(scope: Scope, budget: Budget) -> Any:
        try:
            value = run(scope, budget)
        except ExpressionError as error:
            error.locate(offset)
            raise
        return None if value is UNDEFINED and not soft else value

    return located
