"""Takes deliveries and has the engine handle them, many at a time."""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from time import perf_counter
from typing import Any

from rune.core.errors import DefinitionError, EngineError, InfrastructureError, MessageError
from rune.core.histogram import Histogram
from rune.core.node import NodeType
from rune.core.ports import Broker, Delivery, State
from rune.engine import Engine
from rune.settings import Settings
from rune.together import FinishAll, Together

__all__ = ["Worker"]

_log = logging.getLogger("rune.worker")

_REMEMBERED = 20_000
"""Ended executions whose late Tasks are dropped without a look at State."""
_AT_A_TIME = 16
"""Plain steps after which they are sent on, so that the servers work while we do."""
_TRIES = 3
"""Tries after which a delivery that alone finds State or Broker out of reach is the trouble itself."""
_FIRST_REST, _LONGEST_REST = 0.2, 5.0
"""Seconds a delivery is held before it is tried again, when State or Broker is out of reach."""
_DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300)


class Worker:
    """Handles Tasks within a limit of concurrency; what it cannot handle it retries, parks or holds.

    Alone on its database, it ends when State or Broker is out of reach. One that is `enduring` holds what it
    has instead, takes no more, and goes on when they are back; `ready` returns while State can be reached.
    With `finish_all`, which finishes deliveries together, plain steps are done as they come, and items that
    come together arrive together; neither takes a slot.
    `mask` takes secrets out of what is said of errors.
    """

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        state: State,
        settings: Settings,
        *,
        enduring: bool = False,
        ready: Callable[[], Awaitable[None]] | None = None,
        finish_all: FinishAll | None = None,
        mask: Callable[[str], str] = str,
    ) -> None:
        self.on_end: Callable[[str], None] = lambda execution: None
        """Called when this worker has ended an execution."""
        self.handled = self.retried = self.dead_lettered = self.given_back = 0
        """Deliveries that were dealt with, whatever came of them; and those of which this came."""
        self.durations = Histogram(_DURATIONS)
        """Seconds from taking a delivery to having dealt with it."""
        self._engine = engine
        self._broker = broker
        self._state = state
        self._settings = settings
        self._enduring = enduring
        self._ready = ready
        self._mask = mask
        self._together: Together | None = None
        if finish_all is not None:
            self._together = Together(engine, finish_all, self._begin_alone, self._finished)
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._resting: set[asyncio.Task[None]] = set()
        """Deliveries that only wait for other executions, and have given their slot back."""
        self._giving_up: set[asyncio.Task[Any] | None] = set()
        """Deliveries that end their execution, and are dead letters only after that."""
        self._alone = asyncio.Lock()
        self._alone_in: asyncio.Task[None] | None = None
        """Whoever has the lock."""
        self._troubled = 0
        """Deliveries that wait for State or Broker to come back."""
        self._heard = 0
        """How often somebody said that an execution is paused, or goes on."""
        self._calm = asyncio.Event()
        self._calm.set()
        self._broken: asyncio.Future[None] | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Take and handle deliveries until stopped, or until State or Broker is out of reach."""
        await self.catch_up()
        self._engine.on_end = self._ended_here
        self._engine.on_rest = self._rest
        self._broken = asyncio.get_running_loop().create_future()
        intake = asyncio.ensure_future(self._take())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {intake, stopping, self._broken}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            if intake.done():
                intake.result()
            await _cancelled(intake)
            await self._let_finish()
        finally:
            stopping.cancel()
            await _cancelled(intake)
            await self._stop()

    def stop(self) -> None:
        """Take no more; `run` returns when what is running has ended, or the grace period has."""
        self._stopping.set()

    async def catch_up(self) -> None:
        """Read which executions have ended or are paused."""
        heard = self._heard
        ended, paused = await self._state.news()
        if heard == self._heard:
            # What was said meanwhile is younger.
            self._engine.paused = paused
        for execution in ended - self._engine.ended.keys():
            self.ended(execution)

    def ended(self, execution: str) -> None:
        """An execution has ended, here or elsewhere: drop what is left of it."""
        known = self._engine.ended
        known[execution] = None
        if len(known) > _REMEMBERED:
            del known[next(iter(known))]
        self._forsake(execution)

    def paused(self, execution: str) -> None:
        """An execution was paused: its Tasks are parked from now on."""
        self._heard += 1
        self._engine.paused |= {execution}

    def resumed(self, execution: str) -> None:
        """A paused execution goes on."""
        self._heard += 1
        self._engine.paused -= {execution}

    @property
    def steps(self) -> Mapping[tuple[type[NodeType], type], int]:
        """Steps that have ended or rest, by the type of their node and of their outcome."""
        return self._engine.counts

    @property
    def in_flight(self) -> int:
        """Deliveries in our hands."""
        return len(self._running) + (len(self._together) if self._together is not None else 0)

    @property
    def held(self) -> bool:
        """Whether we hold what we have, because State or Broker is out of reach."""
        return self._troubled > 0

    @property
    def stopping(self) -> bool:
        """Whether we were told to stop."""
        return self._stopping.is_set()

    def _ended_here(self, execution: str) -> None:
        self._forsake(execution)
        self.on_end(execution)

    async def _take(self) -> None:
        deliveries = self._broker.deliveries(self._settings.prefetch)
        try:
            while True:
                # First the room, then the delivery: so none is in hand while we wait.
                await self._slots.acquire()
                delivery = await self._next(deliveries)
                while self._together is not None and self._calm.is_set() and self._together.take(delivery):
                    if self._together.pending >= _AT_A_TIME:
                        await asyncio.sleep(0)
                    delivery = await self._next(deliveries)
                self._begin(delivery)
        finally:
            if isinstance(deliveries, AsyncGenerator):
                await deliveries.aclose()

    async def _next(self, deliveries: AsyncIterator[Delivery]) -> Delivery:
        await self._calm.wait()
        if self._ready is not None:
            await self._ready()
        return await anext(deliveries)

    def _begin(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._handle(delivery))
        self._running[task] = delivery
        task.add_done_callback(self._done)

    async def _begin_alone(self, delivery: Delivery) -> None:
        await self._slots.acquire()
        self._begin(delivery)

    def _finished(self, count: int, seconds: float) -> None:
        self.handled += count
        for _ in range(count):
            self.durations.add(seconds)

    def _rest(self) -> None:
        """Make room for the executions that the delivery which is being handled waits for."""
        task = asyncio.current_task()
        if task in self._running and task not in self._resting:
            self._resting.add(task)
            self._slots.release()
            if self._alone_in is task:
                self._be_joined()

    async def _handle_alone(self, delivery: Delivery) -> None:
        task = asyncio.current_task()
        await self._alone.acquire()
        self._alone_in = task
        try:
            await self._engine.handle(delivery)
        finally:
            if self._alone_in is task:
                self._be_joined()

    def _be_joined(self) -> None:
        self._alone_in = None
        self._alone.release()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if task in self._resting:
            self._resting.remove(task)
        else:
            self._slots.release()
        if task.cancelled() or self._broken is None or self._broken.done():
            return
        error = task.exception()
        if error is not None:
            self._broken.set_exception(error)

    async def _let_finish(self) -> None:
        """Let what is running end by itself, for a while."""
        left = [*self._running, *(self._together.running if self._together is not None else ())]
        if left and self._settings.grace:
            _log.info("stopping: %d Tasks may take %g s to end", len(left), self._settings.grace)
            await asyncio.wait(left, timeout=self._settings.grace)

    async def _stop(self) -> None:
        """Give back what is still running."""
        running = {task: [delivery] for task, delivery in self._running.items()}
        if self._together is not None:
            running |= self._together.running
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        left = [delivery for deliveries in running.values() for delivery in deliveries]
        await asyncio.gather(*(self._broker.give_back(delivery) for delivery in left))
        self.given_back += len(left)

    def _forsake(self, execution: str) -> None:
        """Stop what still runs for an execution that has ended."""
        spared = {*self._giving_up, asyncio.current_task()}
        for task, delivery in self._running.items():
            if delivery.task.execution_id == execution and task not in spared:
                # Not before it has begun: it could not finish its delivery.
                asyncio.get_running_loop().call_soon(task.cancel)

    async def _handle(self, delivery: Delivery) -> None:
        begun = perf_counter()
        try:
            await self._endure(delivery)
        except asyncio.CancelledError:
            # Its execution may have ended while it waited for State or Broker.
            if delivery.task.execution_id not in self._engine.ended:
                raise
            await self._broker.finish(delivery)
        self.handled += 1
        self.durations.add(perf_counter() - begun)

    async def _endure(self, delivery: Delivery) -> None:
        """Handle a delivery, as often as it takes."""
        # It may have come in just when the trouble began.
        await self._calm.wait()
        tries, handled = 0, 0
        while True:
            try:
                await self._attempt(delivery)
                return
            except InfrastructureError as error:
                if not self._enduring:
                    raise
                if tries >= _TRIES and self.handled > handled:
                    # Others get through, so that it is not the servers.
                    await self._try_later(delivery, error)
                    return
                handled = self.handled
                await self._wait_out(error, min(_FIRST_REST * 2**tries, _LONGEST_REST))
                tries += 1

    async def _wait_out(self, error: InfrastructureError, rest: float) -> None:
        """Hold a delivery, and let no others in, until State and Broker may be back."""
        if not self._troubled:
            _log.warning("%s; holding what we have and taking no more", self._mask(str(error)))
        self._troubled += 1
        self._calm.clear()
        try:
            await asyncio.sleep(rest * random.uniform(0.5, 1.0))
        finally:
            self._troubled -= 1
            if not self._troubled:
                self._calm.set()

    async def _attempt(self, delivery: Delivery) -> None:
        try:
            if delivery.redelivered:
                # It may be what killed a worker: let it not take others along.
                await self._handle_alone(delivery)
            else:
                await self._engine.handle(delivery)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if delivery.task.execution_id in self._engine.ended:
                await self._broker.finish(delivery)
            elif task is None or task.cancelling():
                raise
            else:
                await self._try_later(delivery, error)
        except InfrastructureError:
            raise
        except (MessageError, DefinitionError, EngineError) as error:
            _log.warning("%s; giving up: %s", _about(delivery), self._mask(str(error)))
            await self._give_up(delivery, str(error))
        except Exception as error:  # noqa: BLE001 - a bug must not stop the worker, nor lose the Task
            await self._try_later(delivery, error)

    async def _try_later(self, delivery: Delivery, error: BaseException) -> None:
        delays = self._settings.retry_delays
        if delivery.retries < len(delays):
            delay = delays[delivery.retries]
            _log.warning("%s; trying again in %g s\n%s", _about(delivery), delay, self._traceback(error))
            await self._broker.retry(delivery, delay)
            self.retried += 1
            return
        _log.error("%s; giving up\n%s", _about(delivery), self._traceback(error))
        await self._give_up(delivery, f"{type(error).__name__}: {error}")

    def _traceback(self, error: BaseException) -> str:
        return self._mask("".join(traceback.format_exception(error)).rstrip())

    async def _give_up(self, delivery: Delivery, reason: str) -> None:
        reason, task = self._mask(reason), asyncio.current_task()
        error = EngineError(f"dead-lettered: {reason}", "DEAD_LETTER")
        self._giving_up.add(task)
        try:
            if await self._failed(delivery, error):
                await self._broker.dead_letter(delivery, reason)
                self.dead_lettered += 1
            else:
                # What has ended needs no post mortem.
                await self._broker.finish(delivery)
        finally:
            self._giving_up.remove(task)

    async def _failed(self, delivery: Delivery, error: EngineError) -> bool:
        try:
            return await self._engine.fail(delivery.task, error)
        except InfrastructureError:
            raise
        except Exception as trouble:  # noqa: BLE001 - the message itself may be what is wrong
            _log.error("%s; its execution cannot be told\n%s", _about(delivery), self._traceback(trouble))
            return True


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel something, and see that it has ended."""
    task.cancel()
    await asyncio.wait([task])


def _about(delivery: Delivery) -> str:
    task = delivery.task
    return f"trouble at node '{task.current_node}' of {task.execution_id}"
