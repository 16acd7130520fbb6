"""The limit node: the first items of a list."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Outcome
from rune.nodes._lists import list_of, working_list

__all__ = ["Limit"]


class Limit(NodeType, kw_only=True):
    """Keep the first items of a list."""

    name: ClassVar = "limit"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    count: Annotated[int, Meta(description="How many items to keep.", ge=0)]
    input_array: Annotated[Any, Meta(description="The list.")] = "$json"

    async def run(self, context: StepContext) -> Outcome:
        items = list_of(self.input_array)
        return working_list(items[: self.count], items)
