"""The sql node: statements in PostgreSQL or DuckDB."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

__all__ = ["Sql"]


class Sql(NodeType, kw_only=True):
    """Run SQL in one transaction and give the rows of its last statement.

    For PostgreSQL the credential has `dsn`, or `host`, `port`, `user`, `password` and `database`. Values
    belong into `params`, as `$1`, `$2` in the command: text put together is open to injection.
    """

    name: ClassVar = "sql"

    command: Annotated[str, Meta(description="One or more statements.", min_length=1)]
    params: Annotated[list[Any] | None, Meta(description="The values of `$1`, `$2`, …")] = None
    engine: Annotated[Literal["postgres", "duckdb"], Meta(description="Which database.")] = "postgres"
    database: Annotated[str, Meta(description="The file of DuckDB; without it, one in memory.")] = ""
    timeout: Annotated[float, Meta(description="Seconds a statement may take.", gt=0)] = 60

    async def run(self, context: StepContext) -> Outcome:
        databases = context.service("sql")
        if self.engine == "postgres":
            credential = await context.credential()
            ran = await databases.postgres(credential, self.command, self.params or (), self.timeout)
        else:
            threads = context.service("threads")
            ran = await threads.run(lambda: databases.duckdb(self.database, self.command, self.params or ()))
        last = ran[-1]
        return Done(
            {
                "rows": last.rows,
                "row_count": last.row_count,
                "columns": last.columns,
                "status": last.status,
                "statements": len(ran),
            }
        )
