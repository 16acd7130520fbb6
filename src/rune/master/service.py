"""The master itself: what it holds, the loops that run behind the API, and how executions are started."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rune.core.errors import InfrastructureError
from rune.core.messages import CompletionMessage
from rune.core.registry import Registry
from rune.embedded import Embedded
from rune.history import History
from rune.history.credentials import CredentialStore
from rune.history.executions import Execution
from rune.history.idempotency import Idempotency
from rune.master.endings import Endings
from rune.master.flows import Flows
from rune.master.live.hub import Hub
from rune.master.live.listing import Listing
from rune.master.metrics import Metrics
from rune.master.recorder import Recorder
from rune.master.redrive import Redriving
from rune.master.runtime import Runtime
from rune.master.starting import Starter
from rune.master.triggers.triggering import Triggering
from rune.master.watch import Patience, Watch
from rune.settings import Settings

__all__ = ["Master"]

_log = logging.getLogger("rune.master")

_REST = 1.0
"""Seconds before a loop that broke is started again."""
_TIDY = 3600.0
"""Seconds between two looks for what has been kept long enough."""

_PAUSE = 0.05
"""Seconds in which what the engine has told reaches the recorder, before a master stops."""

Loop = Callable[[], Coroutine[Any, Any, None]]


class Master:
    """Holds the history and the runtime, and keeps its loops going."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        history: History,
        runtime: Runtime,
        *,
        accounts: bool = False,
        credentials: CredentialStore | None = None,
        patience: Patience = Patience(),  # noqa: B008 - frozen
        engine: Embedded | None = None,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.history = history
        self.runtime = runtime
        self.accounts = accounts
        """Whether people have to log in."""
        self.credentials = credentials
        """Where credentials are stored; None without a key."""
        self._engine = engine
        """The engine, where it is in this process."""
        self.started_at = time.time()
        self.metrics = Metrics()
        self.flows = Flows(registry)
        self.endings = Endings(history)
        self.starter = Starter(history, runtime, self.metrics)
        self.idempotency = Idempotency(history.database)
        self.redriving = Redriving(history, runtime)
        self.watch = Watch(history, runtime, self._start_again, patience=patience)
        self.recorder = Recorder(history, runtime)
        self.recorder.on_ended = self._ended
        self.recorder.on_recorded = self._recorded
        self.live = Hub(history.changes, settings.streams)
        self.listing = Listing(history.executions.latest)
        vault = credentials.vault if credentials else None
        self.triggering = Triggering(settings, history, runtime, self.flows, self.starter, vault)
        self.starter.also = self.triggering.links.values

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the loops going meanwhile."""
        loops = [asyncio.create_task(self._kept_going(loop)) for loop in self._loops()]
        try:
            yield
        finally:
            await self.starter.close()
            await self._settle()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _settle(self) -> None:
        """Let the engine take no more, and the recorder hear what it has told."""
        if self._engine is not None:
            self._engine.taking.clear()
            await asyncio.sleep(_PAUSE)

    async def broken(self) -> None:
        """Return never; raise what ended the engine, if it is in this process and has ended."""
        if self._engine is None:
            await asyncio.Event().wait()
        else:
            await self._engine.broken()

    def _loops(self) -> Sequence[Loop]:
        return [self.recorder.run, self.watch.run, self.starter.mark, self.triggering.run, self._tidy]

    def _recorded(self, executions: Iterable[str]) -> None:
        self.live.nudge(executions)
        self.listing.nudge()

    def _ended(self, completions: Sequence[CompletionMessage]) -> None:
        for completion in completions:
            self.metrics.ended.labels(completion.status).inc()
        self.endings.tell([completion.execution_id for completion in completions])

    async def _start_again(self, execution: Execution) -> None:
        """Start what is stored, and whose start was perhaps cut short."""
        definition = await self.history.executions.definition(execution.id)
        if definition is not None:
            flow = self.flows.flow(definition.encode())
            await self.starter.launch(flow, execution, self.redriving.seeds_of(execution, flow))

    async def _tidy(self) -> None:
        while True:
            await self.idempotency.forget()
            await self.history.retention.sweep(self.settings.retention)
            await asyncio.sleep(_TIDY)

    async def _kept_going(self, loop: Loop) -> None:
        """Run a loop; one that breaks is told in the log and started again."""
        name = loop.__qualname__
        while True:
            try:
                await loop()
                return
            except InfrastructureError as error:
                _log.warning("%s; trying again", error)
            except Exception as error:  # noqa: BLE001 - one loop's bug must not end the others
                _log.error("%s broke; starting it again", name, exc_info=error)
            self.metrics.broken.labels(name).inc()
            await asyncio.sleep(_REST)
