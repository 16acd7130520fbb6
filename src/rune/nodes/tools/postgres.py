"""The postgres tool: statements in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.playbook.tool import Tool, ToolContext, ToolError
from rune.nodes._sql import Ran

__all__ = ["PostgresTool", "outcome_of"]

_KINDS = {"SQL_TIMEOUT": "timeout", "SQL_EMPTY": "sql", "SQL_TOO_MANY_ROWS": "sql"}


class PostgresTool(Tool, kw_only=True):
    """Run SQL in one transaction; `result.command_0` is what the first statement gave, and so on."""

    name: ClassVar = "tool.postgres"

    auth: Annotated[str | None, Meta(description="The credential with the address and the password.")] = None
    command: Annotated[str | None, Meta(description="One or more statements.")] = None
    query: Annotated[str | None, Meta(description="The same, as older playbooks call it.")] = None
    params: Annotated[list[Any] | None, Meta(description="The values of `$1`, `$2`, …")] = None
    timeout: Annotated[float, Meta(description="Seconds a statement may take.", gt=0)] = 60

    def __post_init__(self) -> None:
        if not (self.command or self.query):
            raise ValueError("`command` is missing")

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        command = self.command or self.query or ""
        try:
            credential = await context.credential(self.auth)
            databases = context.service("sql")
            ran = await databases.postgres(credential, command, self.params or (), self.timeout)
        except NodeError as error:
            state = (error.details or {}).get("sqlstate")
            raise ToolError(
                error.message,
                error.code,
                kind="sql" if state else _KINDS.get(error.code, "connection"),
                retryable=error.retryable,
                details=error.details,
                helpers={"pg": {"code": state}},
            ) from error
        return {**outcome_of(ran), "pg": {"code": None}}


def outcome_of(ran: Sequence[Ran]) -> Mapping[str, Any]:
    """The result of statements, each by its number."""
    return {"result": {f"command_{n}": msgspec.structs.asdict(one) for n, one in enumerate(ran)}}
