"""The embedded engine: broker, state, worker and scheduler in one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from rune.core.errors import InfrastructureError
from rune.core.ids import is_child, new_execution_id
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, decode_task
from rune.core.ports import Broker, State
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.engine.values import expand
from rune.formats.definition import compile_definition
from rune.nodes import SERVICES
from rune.scheduler import Scheduler
from rune.settings import Settings
from rune.worker import Worker

if TYPE_CHECKING:
    from rune.backends.sqlite import Database

__all__ = ["Embedded"]

_KEPT = 10_000
"""Completions that are remembered though nobody acknowledges them."""

Listener = Callable[[Sequence[NodeStatusMessage]], None]


class LocalBroker(Broker, Protocol):
    """A broker that tells statuses within this process."""

    listeners: list[Listener]

    async def depth(self) -> int:
        """How many Tasks wait or are being handled."""


class Embedded:
    """Runs executions in this process; made by `Embedded.open`."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        broker: LocalBroker,
        state: State,
        credentials: Credentials | None = None,
        services: Mapping[str, Callable[[], Any]] = SERVICES,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.broker = broker
        self.state = state
        self.database: Database | None = None
        """The file it is kept in, open to others."""
        credentials = credentials or Credentials(settings.credentials, settings.credentials_dir)
        self._runner = Runner(settings, time.time, services, credentials)
        self.engine = Engine(state, broker, self._compile, self._runner, settings, time.time)
        self.taking = asyncio.Event()
        """Set while Tasks may be taken: whoever listens and falls behind clears it."""
        self.taking.set()
        self.worker = Worker(self.engine, broker, state, settings, ready=self._opened)
        self.scheduler = Scheduler(state, broker, time.time)
        self.flows: dict[str, Workflow] = {}
        """The workflows that this process has come to know, by id."""
        self._ended: dict[str, CompletionMessage] = {}
        """Completions until they are acknowledged."""
        self._news = asyncio.Condition()
        self._hearers: list[Callable[[CompletionMessage], None]] = []
        self._heeds_children = False
        """Whether somebody wants to hear also how executions ended that others have started."""
        self._started: dict[str, tuple[str, float]] = {}
        """Workflow and start of the executions that were started here."""
        self._loops: list[asyncio.Task[None]] = []

    def _compile(self, definition: bytes) -> Workflow:
        flow = compile_definition(definition, self.registry)
        self.flows[flow.id] = flow
        return flow

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        registry: Registry,
        database: str | None = None,
        *,
        credentials: Credentials | None = None,
        services: Mapping[str, Callable[[], Any]] = SERVICES,
        held: bool = False,
    ) -> AsyncIterator[Embedded]:
        """Open on a SQLite file, or in memory when `database` is None.

        `credentials` resolves references in place of the settings', and `services` is what nodes share. One
        that is `held` takes no Tasks until `taking` is set, and tells of the ends of called executions,
        too: so whoever listens misses nothing.
        """
        if database is None:
            from rune.backends.memory import MemoryBroker, MemoryState

            rune = cls(settings, registry, MemoryBroker(), MemoryState(), credentials, services)
            if held:
                rune._hold()
            async with rune._running():
                yield rune
            return
        from rune.backends.sqlite import open_sqlite

        async with open_sqlite(database, synchronous=settings.synchronous) as (broker, state):
            await state.forget_unstarted()
            rune = cls(settings, registry, broker, state, credentials, services)
            rune.database = state.database
            if held:
                rune._hold()
            async with rune._running():
                yield rune

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        loops = [self.worker.run(), self.scheduler.run(), self._collect()]
        self._loops = [asyncio.create_task(loop) for loop in loops]
        try:
            yield
        finally:
            for loop in self._loops:
                loop.cancel()
            await asyncio.gather(*self._loops, return_exceptions=True)
            await self._runner.close()

    async def _collect(self) -> None:
        async for completion in self.broker.completions():
            if is_child(completion.execution_id) and not self._heeds_children:
                # Whoever called it has been told, and nobody else asks.
                await self.broker.completed(completion)
                continue
            async with self._news:
                self._ended[completion.execution_id] = completion
                if len(self._ended) > _KEPT:
                    del self._ended[next(iter(self._ended))]
                self._news.notify_all()
            for hearer in self._hearers:
                hearer(completion)

    def _hold(self) -> None:
        self.taking.clear()
        self._heeds_children = True

    async def _opened(self) -> None:
        await self.taking.wait()

    # --- what a caller does ---

    async def start(
        self,
        flow: Workflow,
        *,
        input: Any = None,
        context: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> str:
        """Start an execution of `flow`; its id."""
        execution = new_execution_id()
        self.flows[flow.id] = flow
        values = {"$trigger": input if input is not None else {}, **(context or {})}
        raw = {key: Raw(msgspec.json.encode(value)) for key, value in values.items()}
        self._started[execution] = (flow.id, time.time())
        await self.engine.start(flow, execution, raw, priority=priority)
        return execution

    async def result(self, execution: str) -> CompletionMessage:
        """Wait for an execution's end; its completion, with every value in it."""
        waiting = asyncio.ensure_future(self._end_of(execution))
        try:
            either: set[asyncio.Future[Any]] = {waiting, *self._loops}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._raise_broken()
            completion = waiting.result()
        finally:
            waiting.cancel()
        if completion.refs:
            layers = await self.engine.values.load(execution, completion.refs)
            whole = expand(completion.refs, layers) | completion.final_context
            completion = msgspec.structs.replace(completion, final_context=whole, refs=())
        return completion

    async def _end_of(self, execution: str) -> CompletionMessage:
        async with self._news:
            await self._news.wait_for(lambda: execution in self._ended)
            return self._ended[execution]

    async def acknowledge(self, completion: CompletionMessage) -> None:
        """The completion has been seen: it is not handed out again."""
        self._ended.pop(completion.execution_id, None)
        await self.broker.completed(completion)

    async def broken(self) -> None:
        """Return never; raise what ended the engine, when something has."""
        await asyncio.wait(self._loops, return_when=asyncio.FIRST_COMPLETED)
        self._raise_broken()

    def _raise_broken(self) -> None:
        for loop in self._loops:
            if loop.done() and not loop.cancelled() and loop.exception() is not None:
                raise loop.exception()  # type: ignore[misc]
        raise InfrastructureError("the engine stopped")

    async def live(self) -> list[str]:
        """The executions that have not ended."""
        return await self.state.live()

    async def unfinished(self) -> list[str]:
        """The executions that have not ended or been acknowledged; not those that others have called."""
        # Let the completions that are stored already come in first.
        await asyncio.sleep(0)
        known = dict.fromkeys([*await self.state.live(), *self._ended])
        return [execution for execution in known if not is_child(execution)]

    def listen(self, listener: Listener) -> None:
        """Have every status told to `listener`, in lists."""
        self.broker.listeners.append(listener)

    def hear(self, hearer: Callable[[CompletionMessage], None]) -> None:
        """Have every completion told to `hearer`, those that nobody has acknowledged first."""
        for completion in self._ended.values():
            hearer(completion)
        self._hearers.append(hearer)

    async def cancel(self, execution: str, reason: str = "cancelled") -> None:
        """Ask for an execution's end."""
        workflow, started_at = self._started.get(execution, ("-", 0.0))
        task = Task(
            workflow_id=workflow,
            execution_id=execution,
            started_at=started_at,
            current_node="",
            accumulated_context={},
            phase="cancel",
            details=Raw(msgspec.json.encode(reason)),
            priority=10,
        )
        await self.broker.publish([task])

    async def pause(self, execution: str) -> None:
        """Let nothing further of an execution start."""
        if await self.state.pause(execution):
            self.engine.paused |= {execution}

    async def resume(self, execution: str) -> None:
        """Let a paused execution go on."""
        parked = await self.state.unpause(execution)
        self.engine.paused -= {execution}
        await self.broker.publish([decode_task(task) for task in parked])
        await self.state.unparked(execution)
