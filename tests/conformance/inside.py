"""The rig whose engine runs in this process: it can crash between any two calls of its ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from rune.core.messages import Task
from rune.core.ports import Broker, Delivery, State
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.nodes import SERVICES
from rune.scheduler import Scheduler
from rune.worker import Worker
from tests.conformance.faults import Crash, Faults, FaultyBroker, FaultyState
from tests.conformance.flows import compile_bytes
from tests.conformance.harness import Backend, Clock, Rig

__all__ = ["Inside", "Openable"]


class Openable(Backend, Protocol):
    """A backend that a test opens for itself."""

    async def open(self, clock: Clock) -> None:
        """Open it, empty."""

    async def reopen(self, clock: Clock) -> bool:
        """The process died and came back: whether the broker now delivers again what was unfinished."""

    async def close(self) -> None:
        """Close it."""


class _Worker(Worker):
    """A worker that keeps what went wrong for the test to see."""

    def __init__(self, rig: Inside) -> None:
        super().__init__(rig.engine, rig.broker, rig.state, rig.settings)
        self._rig = rig

    async def _try_later(self, delivery: Delivery, error: BaseException) -> None:
        self._rig.unexpected.append(error)
        await super()._try_later(delivery, error)


class Inside(Rig):
    """One engine at a time over one backend, until it crashes; then the next one."""

    backend: Openable

    def __init__(self, backend: Openable, *, clock: Clock | None = None, **manner: Any) -> None:
        super().__init__(clock=clock or Clock(), **manner)
        self.backend = backend
        self.faults = Faults()
        self.unexpected: list[BaseException] = []
        self.forgiving = False
        """Go on after an unexpected error."""
        self.unfinished: dict[int, Delivery] = {}
        self.published = 0
        self.taken = 0
        self.crashes = 0
        self._arrived = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._working: list[asyncio.Future[None]] = []
        self._ticking: asyncio.Future[int] | None = None

    async def open(self) -> None:
        await self.backend.open(self.clock)
        self._build()
        self._pump = asyncio.create_task(self._take())

    async def close(self) -> None:
        await self._stop_pump()
        await self._runner.close()
        await self.backend.close()

    def _build(self) -> None:
        self.state: State = FaultyState(self)  # type: ignore[assignment]
        self.broker: Broker = FaultyBroker(self)  # type: ignore[assignment]
        services = {**SERVICES, "world": lambda: self.world}
        self._runner = Runner(self.settings, self.clock, services, Credentials(self.settings.credentials))
        self.engine = Engine(self.state, self.broker, compile_bytes, self._runner, self.settings, self.clock)
        self.worker = _Worker(self)
        self.scheduler = Scheduler(self.state, self.broker, self.clock)

    async def _stop_pump(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None

    async def _take(self) -> None:
        async for delivery in self.backend.broker.deliveries(1_000_000):
            self.inbox.append(delivery)
            self.unfinished[delivery.tag] = delivery
            self.taken += 1
            self._arrived.set()

    async def yield_to_others(self) -> None:
        """Let concurrent deliveries overtake each other at ports."""
        if self.at_once > 1:
            often = 40 if self.random.random() < 0.05 else 3
            for _ in range(self.random.randrange(often)):
                await asyncio.sleep(0)

    def sent(self, tasks: Sequence[Task]) -> list[Task]:
        """What becomes of Tasks on their way: some come twice."""
        self.tasks += tasks
        return [*tasks, *(task for task in tasks if self._double(task))]

    # --- what a test does ---

    async def start(
        self, definition: Mapping[str, Any], input: Any = None, *, execution: str = "", **context: Any
    ) -> str:
        """Start an execution, as often as it takes."""
        execution = execution or self.name()
        while True:
            try:
                return await super().start(definition, input, execution=execution, **context)
            except Crash:
                await self.restart()

    async def publish(self, message: Mapping[str, Any] | Task) -> None:
        await super().publish(message)
        self.published += 1

    async def run(self, *, until: Callable[[], bool] | None = None, timers: bool = True) -> None:
        while until is None or not until():
            if not self.forgiving:
                self.check()
            await self.fill()
            if self.inbox:
                await self.handle(*self._choose(self.at_once))
            elif not timers or not await self.tick():
                return

    async def fill(self) -> None:
        while self.taken < self.published:
            self._arrived.clear()
            await asyncio.wait_for(self._arrived.wait(), 20)

    async def handle(self, *deliveries: Delivery) -> None:
        """Handle deliveries, all at the same time; a crash ends them all."""
        self._working = [asyncio.ensure_future(self.worker._handle(delivery)) for delivery in deliveries]
        await asyncio.wait(self._working, return_when=asyncio.FIRST_EXCEPTION)
        if self.faults.dead:
            self.kill()
            await asyncio.gather(*self._working, return_exceptions=True)
            await self.restart()
        else:
            await asyncio.gather(*self._working)

    async def drop(self, delivery: Delivery) -> None:
        await self.backend.broker.finish(delivery)
        self.unfinished.pop(delivery.tag, None)

    def kill(self) -> None:
        """Kill the process now; `handle` starts the next one."""
        self.faults.dead = True
        for work in self._working:
            work.cancel()

    async def ring(self) -> None:
        ticking = self._ticking = asyncio.ensure_future(self.scheduler.tick())
        while not ticking.done():
            # What it publishes may be handled before it has forgotten the timers.
            if self.inbox and self.at_once > 1:
                await self.handle(*self._choose(self.at_once))
            else:
                await asyncio.sleep(0)
        self._ticking = None
        if self.faults.dead:
            await self.restart()
        elif not ticking.cancelled() and not isinstance(ticking.exception(), Crash):
            ticking.result()

    async def heed(self, execution: str, *, paused: bool) -> None:
        if paused:
            self.engine.paused |= {execution}
        else:
            self.engine.paused -= {execution}

    async def restart(self) -> None:
        """A new process finds what the old one left."""
        self.crashes += 1
        await self._stop_pump()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
        self.faults.dead = False
        if await self.backend.reopen(self.clock):
            self.published, self.taken = self.backend.queue(), 0
            self.inbox, self.unfinished = [], {}
        else:
            lost = [msgspec.structs.replace(d, redelivered=True) for d in self.unfinished.values()]
            self.inbox = lost
            self.unfinished = {d.tag: d for d in lost}
        self._build()
        self._pump = asyncio.create_task(self._take())

    def count_stored(self) -> Callable[[], int]:
        put = self.backend.state.put
        stored = 0

        async def count(execution: str, values: Mapping[str, bytes]) -> None:
            nonlocal stored
            stored += sum(map(len, values.values()))
            await put(execution, values)

        self.backend.state.put = count  # type: ignore[method-assign]
        return lambda: stored

    def check(self) -> None:
        if self.unexpected:
            raise self.unexpected[0]
