"""The playbook tool: run another playbook, and wait for its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.playbook.tool import Tool, ToolContext, ToolError

__all__ = ["PlaybookTool"]


class PlaybookTool(Tool, kw_only=True):
    """Run another playbook, or a workflow, as an execution of its own; a playbook gives `{ctx, steps}`."""

    name: ClassVar = "tool.playbook"
    calls: ClassVar = "path"
    verbatim: ClassVar = ("path",)

    path: Annotated[
        str,
        Meta(
            description="Which one: a file beside this one, or the id or the name of a stored workflow.",
            min_length=1,
        ),
    ]
    args: Annotated[
        dict[str, Any] | None, Meta(description="What it starts with: merged into its workload.")
    ] = None

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        try:
            return {"result": await context.call(self.path, self.args or {})}
        except NodeError as error:
            raise ToolError(error.message, error.code, kind="playbook", details=error.details) from error
