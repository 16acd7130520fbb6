"""Starting executions: stored first, then started, so that none is lost between the two."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Raw

from rune.core.errors import ConflictError
from rune.core.workflow import Workflow
from rune.history import History
from rune.history.asking import Conditions
from rune.history.executions import Execution, NewExecution
from rune.history.grouping import Grouped
from rune.master.metrics import Metrics
from rune.master.runtime import Runtime, Seeds

__all__ = ["NOTHING", "PROMPT", "Starter"]

_log = logging.getLogger("rune.master")

NOTHING = Raw(b"{}")
"""The input of an execution that was given none."""

PROMPT = 1.0
"""Seconds that whoever asks for an execution with many seeds waits for its start."""
_MARK = 1.0
"""Seconds between two looks for executions that were started since and are still marked as pending: these are
marked as running."""
_MANY = 500
"""Executions that one query of such a look asks about at most."""
_TOGETHER = 100
"""Executions that one transaction stores at most."""


class Starter:
    """Starts what is asked for; to ask again under the same id is to ask once."""

    def __init__(self, history: History, runtime: Runtime, metrics: Metrics) -> None:
        self._database = history.database
        self._executions = history.executions
        self._runtime = runtime
        self._metrics = metrics
        # Together they share a transaction, and the row of the definition that they often have in common.
        # Whoever asked may have gone; then it is started later, as what was stored and never started.
        self._storing = Grouped(history.executions.create_all, _TOGETHER)
        self._launched: list[str] = []
        self._sowing: set[asyncio.Task[None]] = set()
        """Starts with seeds that are under way, also those that nobody waits for any more."""
        self.also: Callable[[Workflow, str], Awaitable[Mapping[str, Raw]]] | None = None
        """What else an execution is given to start with."""

    async def start(self, flow: Workflow, new: NewExecution) -> Execution:
        """Store an execution and start it."""
        execution, begun = await self._stored(new)
        if not begun:
            await self.launch(flow, execution)
            self._metrics.started.labels(execution.trigger).inc()
        return execution

    async def sow(self, flow: Workflow, new: NewExecution, seeds: Seeds) -> Execution:
        """Store an execution and start it with what is known of it, which may go on after this.

        Whatever becomes of that, the execution is stored: what is not started then is started again.
        """
        execution, begun = await self._stored(new)
        if begun:
            return execution
        sowing = asyncio.create_task(self.launch(flow, execution, seeds))
        self._sowing.add(sowing)
        sowing.add_done_callback(self._sown)
        self._metrics.started.labels(execution.trigger).inc()
        done, _ = await asyncio.wait([sowing], timeout=PROMPT)
        if done:
            sowing.result()
        return execution

    def _sown(self, sowing: asyncio.Task[None]) -> None:
        self._sowing.discard(sowing)
        error = None if sowing.cancelled() else sowing.exception()
        if error is not None:
            _log.warning("an execution was not started: %s; it will be", error)

    async def close(self) -> None:
        """Leave what is not started yet to whoever finds it stored."""
        several = list(self._sowing)
        for sowing in several:
            sowing.cancel()
        await asyncio.gather(*several, return_exceptions=True)

    async def _stored(self, new: NewExecution) -> tuple[Execution, bool]:
        """An execution as it is stored, and whether a try before this one has begun it."""
        try:
            return await self._storing.ask(new), False
        except ConflictError:
            known = await self._executions.get(new.id)
            if known is None:
                raise
            return known, known.status != "pending"

    async def launch(self, flow: Workflow, execution: Execution, seeds: Seeds = ()) -> None:
        """Start an execution that is stored."""
        root = execution.root if execution.root != execution.id else ""
        also = await self.also(flow, execution.id) if self.also else {}
        await self._runtime.start(
            flow,
            execution.id,
            {"$trigger": execution.input or NOTHING, **also},
            priority=execution.priority,
            root=root,
            seeds=seeds,
        )
        self._launched.append(execution.id)

    async def mark(self) -> None:
        """Mark what was started as running, unless its first step has been recorded and did so.

        Done some time later and for many at once, it hardly ever has anything to do: the recorder is not kept
        from its work by changes to the rows that it is about to change.
        """
        while True:
            await asyncio.sleep(_MARK)
            launched, self._launched = self._launched, []
            for start in range(0, len(launched), _MANY):
                for id in await self._pending(launched[start : start + _MANY]):
                    await self._executions.set_status(id, "running", ("pending",))

    async def _pending(self, executions: list[str]) -> list[str]:
        where = Conditions()
        where.one_of("id", executions)
        where.add("status = 'pending'")
        rows = await self._database.fetch(f"SELECT id FROM history_execution WHERE {where}", *where.args)
        return [row["id"] for row in rows]
