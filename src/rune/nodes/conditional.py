"""The conditional node: one of two ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from rune.core.expressions import Expression, truth
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.nodes._rules import check_operator, holds

__all__ = ["Comparison", "Conditional"]


class Comparison(Struct, frozen=True, kw_only=True):
    """Two values and how to compare them; `and` and `or` join two further comparisons (RFC 002)."""

    op1: Annotated[Any, Meta(description="Left side.")]
    op2: Annotated[Any, Meta(description="Right side.")] = None
    operator: Annotated[str, Meta(description="eq, neq, gt, lt, gte, lte, contains, …; or `and`, `or`.")] = (
        "eq"
    )

    def __post_init__(self) -> None:
        check_operator(self.operator, "and", "or")


class Conditional(NodeType, kw_only=True):
    """Go one way if a condition is true, another if it is not."""

    name: ClassVar = "conditional"
    ports: ClassVar = ("true", "false")
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    numeric_strings: ClassVar = True

    expression: Annotated[
        Expression | list[Comparison],
        Meta(description="An expression such as `$fetch.status == 200`, or a list of comparisons."),
    ]
    operator: Annotated[Literal["and", "or"], Meta(description="How a list of comparisons is joined.")] = (
        "and"
    )
    true_edge_id: Annotated[str | None, Meta(description="Edge to follow if true; or use port `true`.")] = (
        None
    )
    false_edge_id: Annotated[
        str | None, Meta(description="Edge to follow if false; or use port `false`.")
    ] = None

    @classmethod
    def edge_ports(cls, parameters: Mapping[str, Any]) -> Mapping[tuple[str | int, ...], str]:
        names = {"true_edge_id": "true", "false_edge_id": "false"}
        return {(name,): port for name, port in names.items() if parameters.get(name)}

    async def run(self, context: StepContext) -> Outcome:
        if isinstance(self.expression, Expression):
            result = truth(context.evaluate(self.expression))
        else:
            met = (_met(c.op1, c.operator, c.op2) for c in self.expression)
            result = all(met) if self.operator == "and" else any(met)
        return Done({"result": result}, port="true" if result else "false")


def _met(left: Any, operator: str, right: Any) -> bool:
    match operator.strip().lower():
        case "and":
            return _true(left) and _true(right)
        case "or":
            return _true(left) or _true(right)
    return holds(operator, left, right)


def _true(side: Any) -> bool:
    """The truth of one side of `and` and `or`: a further comparison, or a value."""
    match side:
        case {"op1": left, "operator": str(operator)}:
            return _met(left, operator, side.get("op2"))
    return truth(side)
