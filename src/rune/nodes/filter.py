"""The filter node: the items of a list that match."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from rune.core.errors import NodeError
from rune.core.expressions import ExpressionError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Outcome
from rune.nodes._lists import ABSENT, field_of, list_of, working_list
from rune.nodes._rules import check_operator, holds

__all__ = ["Filter", "FilterRule"]

_ORDERING = frozenset({"gt", "gte", "ge", "lt", "lte", "le", ">", ">=", "<", "<="})


class FilterRule(Struct, frozen=True, kw_only=True):
    """What a field of an item has to be."""

    field: Annotated[str, Meta(description="Field, such as `user.age`; empty is the item itself.")] = ""
    operator: Annotated[str, Meta(description="eq, neq, gt, lt, gte, lte, contains, in, …")] = "eq"
    value: Annotated[Any, Meta(description="What to compare the field with.")] = None

    def __post_init__(self) -> None:
        check_operator(self.operator)


class Filter(NodeType, kw_only=True):
    """Keep the items of a list that match; an item without the field does not."""

    name: ClassVar = "filter"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    rules: Annotated[list[FilterRule], Meta(description="What items have to be.", min_length=1)]
    match_mode: Annotated[Literal["all", "any"], Meta(description="Match all rules, or any.")] = "all"
    input_array: Annotated[Any, Meta(description="The list.")] = "$json"

    async def run(self, context: StepContext) -> Outcome:
        items = list_of(self.input_array)
        decide = all if self.match_mode == "all" else any
        kept = [
            item for i, item in enumerate(items) if decide(_matches(item, rule, i) for rule in self.rules)
        ]
        return working_list(kept, items)


def _matches(item: Any, rule: FilterRule, index: int) -> bool:
    value = field_of(item, rule.field)
    if value is ABSENT or (value is None and rule.operator in _ORDERING):
        return False
    try:
        return holds(rule.operator, value, rule.value)
    except ExpressionError as error:
        raise NodeError(
            f"item {index}, field {rule.field!r}: {error}",
            "FILTER_TYPE",
            {"index": index, "field": rule.field},
        ) from error
