"""The duckdb tool: statements in a DuckDB file, or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.playbook.tool import Tool, ToolContext, ToolError
from rune.nodes.tools.postgres import outcome_of

__all__ = ["DuckdbTool"]


class DuckdbTool(Tool, kw_only=True):
    """Run SQL in DuckDB; `result.command_0` is what the first statement gave, and so on."""

    name: ClassVar = "tool.duckdb"

    command: Annotated[str | None, Meta(description="One or more statements.")] = None
    query: Annotated[str | None, Meta(description="The same, as older playbooks call it.")] = None
    database: Annotated[str, Meta(description="The file; without it, a database in memory.")] = ""
    params: Annotated[list[Any] | None, Meta(description="The values of `?` or `$1`, …")] = None

    def __post_init__(self) -> None:
        if not (self.command or self.query):
            raise ValueError("`command` is missing")

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        command = self.command or self.query or ""
        databases, threads = context.service("sql"), context.service("threads")
        try:
            ran = await threads.run(lambda: databases.duckdb(self.database, command, self.params or ()))
        except NodeError as error:
            raise ToolError(
                error.message, error.code, kind="sql", retryable=error.retryable, details=error.details
            ) from error
        return outcome_of(ran)
