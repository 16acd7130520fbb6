"""The python tool: code of the playbook's, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.playbook.tool import Tool, ToolContext, ToolError
from rune.nodes.code import execute

__all__ = ["PythonTool"]


class PythonTool(Tool, kw_only=True):
    """Run Python; `result`, or what `main(**args)` returns, is the task's result."""

    name: ClassVar = "tool.python"
    verbatim: ClassVar = ("code",)

    code: Annotated[
        str, Meta(description="Python that sets `result`, or defines `main(**args)`.", min_length=1)
    ]
    args: Annotated[dict[str, Any] | None, Meta(description="Variables the code sees, by name.")] = None
    timeout: Annotated[float, Meta(description="Seconds it may take.", gt=0, le=86400)] = 300
    memory: Annotated[int, Meta(description="Megabytes it may use.", ge=64, le=65536)] = 1024

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        args = {**context.args, **context.old_args, **(self.args or {})}
        try:
            result = await execute(self.code, args, self.timeout, self.memory, context)
        except NodeError as error:
            details = error.details or {}
            raised = {"py": {"exception": details.get("exception"), "line": details.get("line")}}
            raise ToolError(
                error.message, error.code, kind="exception", details=details, helpers=raised
            ) from error
        return {"result": result, "py": {"exception": None}}
