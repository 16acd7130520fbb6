"""The distributed engine: a worker or a scheduler of this process, on RabbitMQ and Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rune.core.errors import InfrastructureError
from rune.core.ids import EVERYBODY
from rune.core.messages import decode_task
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.formats.definition import compile_definition
from rune.nodes import guarded_services
from rune.presence import present
from rune.scheduler import Scheduler
from rune.settings import Settings, SettingsError
from rune.worker import Worker

if TYPE_CHECKING:
    from rune.backends.rabbitmq import RabbitBroker
    from rune.backends.redis import RedisState

__all__ = ["connect", "pause", "resume", "run_scheduler", "run_worker"]

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

    with _installed("hiredis"):
        from rune.backends.redis import open_redis

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


@asynccontextmanager
async def _connected(
    settings: Settings, stop: asyncio.Future[Any]
) -> AsyncIterator[tuple[RabbitBroker, RedisState] | None]:
    """What `connect` gives; None if `stop` comes while it waits for Redis."""
    async with AsyncExitStack() as stack:
        connecting = asyncio.ensure_future(stack.enter_async_context(connect(settings)))
        try:
            await asyncio.wait({connecting, stop}, return_when=asyncio.FIRST_COMPLETED)
            connected = connecting.result() if connecting.done() else None
        finally:
            connecting.cancel()
            await asyncio.wait({connecting})
        yield connected


@contextmanager
def _installed(package: str) -> Iterator[None]:
    """Say how to install a package that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        name = package.replace("_", "-")
        raise SettingsError(
            f"this needs the package {name}: pip install 'rune-engine[distributed]'"
        ) from error


def _queues(names: Sequence[str]) -> list[str]:
    """The queues that these names of queues or of pools mean, each once; without any, everybody's."""
    from rune.backends.rabbitmq import pool_queue
    from rune.backends.rabbitmq.topology import EXECUTION, TIMEOUT

    queues: list[str] = []
    for name in names or (EVERYBODY,):
        pool = name.removeprefix(f"{EXECUTION}.")
        try:
            queues.append(name if name in (EXECUTION, TIMEOUT) else pool_queue(pool))
        except ValueError as error:
            raise SettingsError(str(error)) from error
        if name == EVERYBODY:
            queues.append(TIMEOUT)
    return list(dict.fromkeys(queues))


@asynccontextmanager
async def _credentials(settings: Settings) -> AsyncIterator[Credentials]:
    """Where a worker's credentials are: also the master's store, if it is given its address and key."""
    url = settings.history_url or ""
    given = (settings.credentials, settings.credentials_dir)
    if not (settings.key or settings.key_file) or not url.startswith(("postgres://", "postgresql://")):
        yield Credentials(*given)
        return
    with _installed("cryptography"), _installed("asyncpg"):
        from rune.history import open_database
        from rune.history.credentials import open_source

    async with open_database(url) as database:
        yield Credentials(*given, await open_source(database, settings))


async def run_worker(settings: Settings, registry: Registry, stop: Awaitable[object]) -> None:
    """Handle Tasks until `stop`; then take no more, and give back what does not end in time."""
    services = guarded_services(settings.http_allow)
    stopping = asyncio.ensure_future(stop)
    async with _credentials(settings) as credentials, _connected(settings, stopping) as connected:
        if connected is None:
            return
        broker, state = connected
        runner = Runner(settings, time.time, services, credentials)

        def compiled(definition: bytes) -> Workflow:
            return compile_definition(definition, registry)

        engine = Engine(state, broker, compiled, runner, settings, time.time)
        worker = Worker(
            engine,
            broker,
            state,
            settings,
            enduring=True,
            ready=state.ready,
            finish_all=broker.finish_all,
            mask=credentials.mask.text,
        )
        hearsay = Hearsay(broker, worker)
        worker.on_end = hearsay.tell
        try:
            async with _observed(settings, broker, state, worker), _listed(settings, state, worker):
                _log.info("worker ready: %d Tasks at a time", settings.concurrency)
                await _until(
                    stopping,
                    worker.run(),
                    worker.stop,
                    settings.grace + _LAST_WORDS,
                    _for_ever(partial(_follow, worker)),
                    _for_ever(hearsay.telling),
                    _for_ever(hearsay.hearing),
                )
        finally:
            await runner.close()
    _log.info("worker stopped")


async def run_scheduler(settings: Settings, stop: Awaitable[object]) -> None:
    """Publish what is due until `stop`."""
    stopping = asyncio.ensure_future(stop)
    async with _connected(settings, stopping) as connected:
        if connected is None:
            return
        broker, state = connected
        scheduler = Scheduler(state, broker, time.time, lease=min(30.0, settings.lease))
        async with _observed(settings, broker, state, scheduler), present(state.members, "scheduler"):
            _log.info("scheduler ready")
            await _until(stopping, scheduler.run(enduring=True), scheduler.stop, settings.grace)
    _log.info("scheduler stopped")


def _listed(settings: Settings, state: RedisState, worker: Worker) -> AbstractAsyncContextManager[None]:
    """Have a worker listed among the members."""
    return present(
        state.members,
        "worker",
        concurrency=settings.concurrency,
        queues=_queues(settings.queues),
        running=lambda: worker.in_flight,
    )


@asynccontextmanager
async def _observed(
    settings: Settings, broker: RabbitBroker, state: RedisState, subject: Worker | Scheduler
) -> AsyncIterator[None]:
    """Serve the numbers of a worker or a scheduler, if they are wanted."""
    if settings.metrics_port is None:
        yield
        return
    with _installed("prometheus_client"):
        from rune.metrics import Metrics, serving
    async with serving(Metrics(broker, state, subject), settings.metrics_host, settings.metrics_port):
        yield


async def pause(broker: RabbitBroker, state: RedisState, execution: str) -> bool:
    """Let nothing further of an execution start, on any worker; False if it is not alive."""
    if not await state.pause(execution):
        return False
    await broker.broadcast({"paused": [execution]})
    return True


async def resume(broker: RabbitBroker, state: RedisState, execution: str) -> None:
    """Let a paused execution go on."""
    parked = await state.unpause(execution)
    await broker.broadcast({"resumed": [execution]})
    await broker.publish([decode_task(task) for task in parked])
    await state.unparked(execution)


async def _follow(worker: Worker) -> None:
    """Keep up with which executions have ended or are paused."""
    while True:
        await asyncio.sleep(_NEWS)
        await worker.catch_up()


class Hearsay:
    """Tells all workers which executions have ended here, and hears of those that end or pause elsewhere."""

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
        """Heed what is said of executions; what is missed, the news bring a little later."""
        worker = self._worker
        heed = {"ended": worker.ended, "paused": worker.paused, "resumed": worker.resumed}
        async for control in self._broker.controls():
            for word, executions in control.items():
                for execution in executions if word in heed and isinstance(executions, list) else ():
                    heed[word](str(execution))


async def _for_ever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """What goes on beside the worker, again and again."""
    while True:
        try:
            await work()
        except InfrastructureError as error:
            _log.warning("%s; trying again", error)
            await asyncio.sleep(_NEWS)


async def _until(
    stop: asyncio.Future[Any],
    main: Coroutine[Any, Any, None],
    end: Callable[[], None],
    patience: float,
    *beside: Coroutine[Any, Any, None],
) -> None:
    """Run `main`, and others beside it; when `stop` comes, `end` it and wait until it has ended.

    InfrastructureError says that it has not.
    """
    working = asyncio.ensure_future(main)
    others = [asyncio.ensure_future(each) for each in beside]
    try:
        await asyncio.wait({working, stop, *others}, return_when=asyncio.FIRST_COMPLETED)
        end()
        await asyncio.wait({working}, timeout=patience)
        for each in (working, *others):
            if each.done():
                each.result()
        if not working.done():
            raise InfrastructureError("a server is away: what is in our hands will be delivered again")
    finally:
        for each in (working, *others):
            each.cancel()
        await asyncio.gather(working, *others, return_exceptions=True)
