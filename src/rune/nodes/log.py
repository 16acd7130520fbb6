"""The log node: one line in the log."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from rune.core.expressions import to_text
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.nodes._time import iso_at

__all__ = ["Log"]


class Log(NodeType, kw_only=True):
    """Write a line to the log."""

    name: ClassVar = "log"
    effects: ClassVar = False
    trusted: ClassVar = True

    message: Annotated[Any, Meta(description="What to write; anything but text is written as JSON.")]
    level: Annotated[
        Literal["debug", "info", "warn", "warning", "error"], Meta(description="How important it is.")
    ] = "info"

    async def run(self, context: StepContext) -> Outcome:
        message = "null" if self.message is None else to_text(self.message)
        level = "warning" if self.level == "warn" else self.level
        context.log(level, message)
        return Done({"message": message, "level": level, "logged_at": iso_at(context.now())})
