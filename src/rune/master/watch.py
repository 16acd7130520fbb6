"""Watching over executions: those that State has lost are failed, those that were never started are started.

How to tell a lost execution from one of which only a message is left? The master starts executions with
their definition in State, so that State knows each from its start until its tombstone goes: what it does not
know is lost. An execution that somebody else started by a message may go on without State, but only from
message to message, and a message lives for a day at most: without any news for longer, it is lost, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from rune.core.errors import ErrorInfo, RuneError
from rune.core.holding import Standing
from rune.core.messages import CompletionMessage
from rune.engine.statuses import iso
from rune.history import History
from rune.history.database import Row
from rune.history.executions import Execution
from rune.master.runtime import Runtime

__all__ = ["Patience", "Watch"]

_log = logging.getLogger("rune.watch")

_PAGE = 1000
_BELIEVED = """
    SELECT e.id, e.status, e.trigger, e.workflow_id, e.created_at, e.started_at,
        (SELECT max(n.last_at) FROM history_node n WHERE n.execution_id = e.id) AS last_at
    FROM history_execution e
    WHERE e.ended_at IS NULL AND e.created_at < $1 AND e.id > $2 ORDER BY e.id LIMIT $3
"""


class Patience(Struct, frozen=True):
    """Seconds until something that may be wrong is taken to be."""

    look: float = 30.0
    """Between two looks at all executions."""
    started: float = 60.0
    """For a start to be under way, before it is begun again."""
    starting: float = 600.0
    """For a start to be under way of which State has heard."""
    lost: float = 60.0
    """For State not to know an execution, in look after look."""
    told: float = 3600.0
    """For the completion of an execution that has ended to come in."""
    message: float = 25 * 3600.0
    """For anything to be heard of an execution that may be but a message: one lives for a day."""


class Watch:
    """Compares what the history believes with what State knows."""

    def __init__(
        self,
        history: History,
        runtime: Runtime,
        start: Callable[[Execution], Awaitable[None]],
        *,
        patience: Patience = Patience(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`start` starts an execution that is stored, and may do so twice."""
        self._history = history
        self._runtime = runtime
        self._start = start
        self._patience = patience
        self._clock = clock
        self._suspects: dict[tuple[str, str], float] = {}
        """Since when something is wrong with an execution, by what it is."""

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await self.look()
            await asyncio.sleep(self._patience.look)

    async def look(self) -> None:
        """Look at every execution that has not ended, as far as the history knows."""
        suspects: dict[tuple[str, str], float] = {}
        last = ""
        while True:
            before = self._clock() - self._patience.started
            rows = await self._history.database.fetch(_BELIEVED, before, last, _PAGE)
            standings = await self._runtime.standings([row["id"] for row in rows])
            for row in rows:
                wrong = self._wrong(row, standings.get(row["id"]))
                if wrong:
                    key = row["id"], wrong
                    since = suspects[key] = self._suspects.get(key, self._clock())
                    await self._deal(row, wrong, self._clock() - since)
            if len(rows) < _PAGE:
                break
            last = rows[-1]["id"]
        # Only what was wrong at every look in between counts as wrong all the time.
        self._suspects = suspects

    def _wrong(self, row: Row, standing: Standing | None) -> str:
        """What is wrong with an execution, if anything."""
        if standing == "ended":
            return "untold"
        if row["status"] == "pending":
            return "starting" if standing == "alive" else "unstarted"
        if standing == "alive":
            return ""
        if row["trigger"] == "wire":
            heard = row["last_at"] or row["created_at"]
            return "lost" if heard < self._clock() - self._patience.message else ""
        return "lost"

    async def _deal(self, row: Row, wrong: str, seconds: float) -> None:
        patience = self._patience
        match wrong:
            case "unstarted":
                await self._start_again(row["id"])
            case "starting" if seconds >= patience.starting:
                await self._start_again(row["id"])
            case "lost" if seconds >= patience.lost:
                await self._fail(
                    row, "State knows nothing of it: it was emptied, or lost what it held", "STATE_LOST"
                )
            case "untold" if seconds >= patience.told:
                await self._fail(row, "it has ended, but its completion never came in", "COMPLETION_LOST")

    async def _start_again(self, id: str) -> None:
        execution = await self._history.executions.get(id)
        if execution is None or execution.status != "pending":
            return
        _log.warning("%s was stored but not started; starting it", id)
        try:
            await self._start(execution)
        except RuneError as error:
            _log.error("%s cannot be started: %s", id, error)

    async def _fail(self, row: Row, why: str, code: str) -> None:
        _log.error("%s is lost: %s", row["id"], why)
        now = self._clock()
        completion = CompletionMessage(
            workflow_id=row["workflow_id"] or "-",
            execution_id=row["id"],
            status="failed",
            final_context={},
            completed_at=iso(now),
            total_duration_ms=max(0, round((now - (row["started_at"] or now)) * 1000)),
            error=ErrorInfo(why, code),
        )
        await self._history.recording.record((), [completion])
