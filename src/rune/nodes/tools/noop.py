"""The noop tool: nothing but its rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rune.core.playbook.tool import Tool, ToolContext

__all__ = ["Noop"]


class Noop(Tool, kw_only=True):
    """Do nothing: for a task that is there for its `eval`."""

    name: ClassVar = "tool.noop"

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        return {"result": None}
