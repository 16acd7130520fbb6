"""Takes deliveries and has the engine handle them, many at a time."""

from __future__ import annotations

import asyncio
import logging

from rune.core.errors import DefinitionError, EngineError, InfrastructureError, MessageError
from rune.core.ports import Broker, Delivery, State
from rune.engine import Engine
from rune.settings import Settings

__all__ = ["Worker"]

_log = logging.getLogger("rune.worker")


class Worker:
    """Handles Tasks within a limit of concurrency; what it cannot handle it retries, parks or holds."""

    def __init__(self, engine: Engine, broker: Broker, state: State, settings: Settings) -> None:
        self._engine = engine
        self._broker = broker
        self._state = state
        self._settings = settings
        self._running: dict[asyncio.Task[None], Delivery] = {}
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._alone = asyncio.Lock()
        self._broken: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Take and handle deliveries until cancelled, or until State or Broker is out of reach."""
        ended, self._engine.paused = await self._state.news()
        self._engine.ended.update(dict.fromkeys(ended))
        self._engine.on_end = self._forsake
        self._broken = asyncio.get_running_loop().create_future()
        intake = asyncio.ensure_future(self._take())
        try:
            await asyncio.wait({intake, self._broken}, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            intake.result()
        finally:
            intake.cancel()
            await self._stop()

    async def _take(self) -> None:
        deliveries = self._broker.deliveries(self._settings.prefetch)
        while True:
            # First the room, then the delivery: so none is in hand while we wait.
            await self._slots.acquire()
            delivery = await anext(deliveries)
            task = asyncio.create_task(self._handle(delivery))
            self._running[task] = delivery
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._slots.release()
        if task.cancelled() or self._broken is None or self._broken.done():
            return
        error = task.exception()
        if error is not None:
            self._broken.set_exception(error)

    async def _stop(self) -> None:
        """Give back what is still running."""
        running = dict(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for delivery in running.values():
            await self._broker.give_back(delivery)

    def _forsake(self, execution: str) -> None:
        """Stop what still runs for an execution that has ended."""
        for task, delivery in self._running.items():
            if delivery.task.execution_id == execution and task is not asyncio.current_task():
                task.cancel()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            if delivery.redelivered:
                # It may be what killed a worker: let it not take others along.
                async with self._alone:
                    await self._engine.handle(delivery)
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
            await self._give_up(delivery, str(error))
        except Exception as error:  # noqa: BLE001 - a bug must not stop the worker, nor lose the Task
            await self._try_later(delivery, error)

    async def _try_later(self, delivery: Delivery, error: BaseException) -> None:
        delays = self._settings.retry_delays
        if delivery.retries < len(delays):
            delay = delays[delivery.retries]
            _log.warning("%s; trying again in %g s", _about(delivery), delay, exc_info=error)
            await self._broker.retry(delivery, delay)
            return
        _log.error("%s; giving up", _about(delivery), exc_info=error)
        await self._give_up(delivery, f"{type(error).__name__}: {error}")

    async def _give_up(self, delivery: Delivery, reason: str) -> None:
        error = EngineError(f"dead-lettered: {reason}", "DEAD_LETTER")
        if await self._failed(delivery, error):
            await self._broker.dead_letter(delivery, reason)
        else:
            # What has ended needs no post mortem.
            await self._broker.finish(delivery)

    async def _failed(self, delivery: Delivery, error: EngineError) -> bool:
        try:
            return await self._engine.fail(delivery.task, error)
        except InfrastructureError:
            raise
        except Exception as trouble:  # noqa: BLE001 - the message itself may be what is wrong
            _log.error("%s; its execution cannot be told", _about(delivery), exc_info=trouble)
            return True


def _about(delivery: Delivery) -> str:
    task = delivery.task
    return f"unexpected error at node '{task.current_node}' of {task.execution_id}"
