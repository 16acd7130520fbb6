"""The distributed engine: a worker or a scheduler of this process, on RabbitMQ and Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from rune.core.errors import InfrastructureError
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.formats.graph import compile_workflow
from rune.nodes import SERVICES
from rune.scheduler import Scheduler
from rune.settings import Settings, SettingsError
from rune.worker import Worker

if TYPE_CHECKING:
    from rune.backends.rabbitmq import RabbitBroker
    from rune.backends.redis import RedisState

__all__ = ["connect", "run_scheduler", "run_worker"]

_log = logging.getLogger("rune.distributed")

_NEWS = 1.0
"""Seconds between two looks at which executions have ended or are paused."""
_LAST_WORDS = 10.0
"""Seconds in which a worker gives back what did not end in time."""
_TOGETHER = 0.05
"""Seconds for which endings wait to be told to all workers together."""


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[tuple[RabbitBroker, RedisState]]:
    """The Broker and the State that these settings name."""
    if settings.broker_url is None or settings.state_url is None:
        raise SettingsError(
            "say where RabbitMQ and Redis are: --broker amqp://… --state redis://…, "
            "or RUNE_BROKER_URL and RUNE_STATE_URL"
        )
    from rune.backends.rabbitmq import open_rabbitmq

    try:
        from rune.backends.redis import open_redis
    except ModuleNotFoundError as error:
        if error.name != "hiredis":
            raise
        raise SettingsError(
            "this needs the package hiredis: pip install 'rune-engine[distributed]'"
        ) from error

    async with (
        open_rabbitmq(
            settings.broker_url,
            queues=_queues(settings.queues),
            retry_delays=settings.retry_delays,
            quorum=settings.quorum,
            status_batch_ms=settings.status_batch_ms,
        ) as broker,
        open_redis(settings.state_url) as state,
    ):
        yield broker, state


def _queues(names: Sequence[str]) -> list[str]:
    """The queues that these names of queues or of pools mean; without any, everybody's."""
    from rune.backends.rabbitmq import pool_queue
    from rune.backends.rabbitmq.topology import EXECUTION, TIMEOUT

    if not names:
        return [EXECUTION, TIMEOUT]
    try:
        return [name if name.startswith("workflow.") else pool_queue(name) for name in names]
    except ValueError as error:
        raise SettingsError(str(error)) from error


async def run_worker(settings: Settings, registry: Registry, stop: Awaitable[object]) -> None:
    """Handle Tasks until `stop`; then take no more, and give back what does not end in time."""
    async with connect(settings) as (broker, state):
        runner = Runner(settings, time.time, SERVICES, Credentials(settings.credentials))

        def compiled(definition: bytes) -> Workflow:
            return compile_workflow(msgspec.json.decode(definition), registry, definition=definition)

        engine = Engine(state, broker, compiled, runner, settings, time.time)
        worker = Worker(engine, broker, state, settings, enduring=True, ready=state.ready)
        endings = Endings(broker, worker)
        worker.on_end = endings.tell
        _log.info("worker ready: %d Tasks at a time", settings.concurrency)
        try:
            await _until(
                stop,
                worker.run(),
                worker.stop,
                settings.grace + _LAST_WORDS,
                _for_ever(partial(_follow, worker)),
                _for_ever(endings.telling),
                _for_ever(endings.hearing),
            )
        finally:
            await runner.close()
    _log.info("worker stopped")


async def run_scheduler(settings: Settings, stop: Awaitable[object]) -> None:
    """Publish what is due until `stop`."""
    async with connect(settings) as (broker, state):
        scheduler = Scheduler(state, broker, time.time, lease=min(30.0, settings.lease))
        _log.info("scheduler ready")
        await _until(stop, scheduler.run(enduring=True), scheduler.stop, settings.grace)
    _log.info("scheduler stopped")


async def _follow(worker: Worker) -> None:
    """Keep up with which executions have ended or are paused."""
    while True:
        await asyncio.sleep(_NEWS)
        await worker.catch_up()


class Endings:
    """Tells all workers which executions have ended here, and hears it of the others."""

    def __init__(self, broker: RabbitBroker, worker: Worker) -> None:
        self._broker = broker
        self._worker = worker
        self._untold: list[str] = []
        self._more = asyncio.Event()

    def tell(self, execution: str) -> None:
        """Let all workers know, soon."""
        self._untold.append(execution)
        self._more.set()

    async def telling(self) -> None:
        """Broadcast what there is to tell."""
        while True:
            await self._more.wait()
            await asyncio.sleep(_TOGETHER)
            self._more.clear()
            untold, self._untold = self._untold, []
            await self._broker.broadcast({"ended": untold})

    async def hearing(self) -> None:
        """Drop what is left of executions that have ended elsewhere."""
        async for control in self._broker.controls():
            ended = control.get("ended", ())
            for execution in ended if isinstance(ended, list) else ():
                self._worker.ended(str(execution))


async def _for_ever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """What goes on beside the worker, again and again."""
    while True:
        try:
            await work()
        except InfrastructureError as error:
            _log.warning("%s; trying again", error)
            await asyncio.sleep(_NEWS)


async def _until(
    stop: Awaitable[object],
    main: Coroutine[Any, Any, None],
    end: Callable[[], None],
    patience: float,
    *beside: Coroutine[Any, Any, None],
) -> None:
    """Run `main`, and others beside it; when `stop` comes, `end` it and wait until it has ended."""
    working = asyncio.ensure_future(main)
    others = [asyncio.ensure_future(each) for each in beside]
    stopping = asyncio.ensure_future(stop)
    try:
        await asyncio.wait({working, stopping, *others}, return_when=asyncio.FIRST_COMPLETED)
        end()
        # What cannot end because a server is away is given up: the servers hold all there is to know.
        await asyncio.wait({working}, timeout=patience)
        for each in (working, *others):
            if each.done():
                each.result()
    finally:
        for each in (working, *others):
            each.cancel()
        await asyncio.gather(working, *others, return_exceptions=True)
