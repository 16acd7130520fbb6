"""The sort node: a list in order."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from rune.core.errors import NodeError
from rune.core.expressions import sort_key, to_text
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Outcome
from rune.nodes._lists import ABSENT, field_of, list_of, working_list
from rune.nodes._time import parse_time

__all__ = ["Sort", "SortRule"]


class SortRule(Struct, frozen=True, kw_only=True):
    """One field to sort by."""

    field: Annotated[str, Meta(description="Field, such as `user.age`; empty is the item itself.")] = ""
    direction: Annotated[
        Literal["asc", "desc", "ascending", "descending"], Meta(description="Smallest or greatest first.")
    ] = "asc"
    type: Annotated[
        Literal["auto", "string", "number", "date", "boolean"],
        Meta(description="What to take values for; `auto` takes them as they are."),
    ] = "auto"


class Sort(NodeType, kw_only=True):
    """Sort a list by one or more fields; equal items keep their order, missing values come first."""

    name: ClassVar = "sort"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    rules: Annotated[
        list[SortRule], Meta(description="Fields to sort by, the most important first.", min_length=1)
    ]
    input_array: Annotated[Any, Meta(description="The list.")] = "$json"

    async def run(self, context: StepContext) -> Outcome:
        items = list_of(self.input_array)
        ordered = list(items)
        for rule in reversed(self.rules):
            ordered.sort(key=partial(_key, rule), reverse=rule.direction.startswith("desc"))
        return working_list(ordered, items)


def _key(rule: SortRule, item: Any) -> Any:
    value = field_of(item, rule.field)
    if value is None or value is ABSENT:
        return sort_key(None)
    try:
        return sort_key(_taken_for(value, rule.type))
    except (ValueError, NodeError):
        raise NodeError(
            f"sort by {rule.field!r}: {value!r:.60} is not a {rule.type}", "SORT_TYPE", {"field": rule.field}
        ) from None


def _taken_for(value: Any, kind: str) -> Any:
    match kind:
        case "number":
            return msgspec.convert(value, int | float, strict=False)
        case "string":
            return to_text(value)
        case "date":
            return parse_time(value).timestamp()
        case "boolean":
            return msgspec.convert(value, bool, strict=False)
    return value
