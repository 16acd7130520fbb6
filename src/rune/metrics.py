"""What a worker or a scheduler tells Prometheus and its keeper: numbers, and whether it is well.

Whoever does the work only counts, in plain integers; they become metrics when somebody asks.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rune import __version__
from rune.core.errors import InfrastructureError
from rune.core.histogram import Histogram
from rune.worker import Worker

if TYPE_CHECKING:
    from rune.backends.rabbitmq import RabbitBroker
    from rune.backends.redis import RedisState
    from rune.scheduler import Scheduler

__all__ = ["Metrics", "serving"]

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE = 1.0
"""Seconds in which Redis has to answer."""
_OUTCOMES = {"FanOut": "fan_out", "NoneType": "none"}
"""Outcomes that are not called as their types are; none is one that is tried again, or was dropped."""


class Metrics(Collector):
    """The numbers of one process, made when they are asked for."""

    def __init__(self, broker: RabbitBroker, state: RedisState, subject: Worker | Scheduler) -> None:
        self._broker = broker
        self._state = state
        self._subject = subject

    def collect(self) -> Iterator[Metric]:
        """The numbers as they are now."""
        broker, state, subject = self._broker, self._state, self._subject
        build = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("rune_build", "What runs here.", build)
        yield _gauge("broker_up", "Whether RabbitMQ can be reached.", broker.up)
        yield _gauge("state_up", "Whether Redis answers.", state.up.is_set())
        yield _counter("published_messages", "Messages to be published with confirms.", broker.published)
        yield _gauge("unconfirmed_messages", "Messages that await their confirm.", broker.unconfirmed)
        yield _histogram("state_call_duration_seconds", "Calls of Redis.", state.durations)
        yield from _of_worker(subject) if isinstance(subject, Worker) else _of_scheduler(subject)

    async def troubles(self) -> list[str]:
        """Why the process can do no work now; none means that it can."""
        if self._subject.stopping:
            return ["stopping"]
        found = [] if self._broker.up else ["RabbitMQ is out of reach"]
        try:
            # It may be a while since anybody asked Redis for anything.
            async with asyncio.timeout(_PATIENCE):
                await self._state.check()
        except (TimeoutError, InfrastructureError):
            found.append("Redis is out of reach")
        return found


def _of_worker(worker: Worker) -> Iterator[Metric]:
    yield _counter("tasks_handled", "Tasks dealt with, whatever came of them.", worker.handled)
    yield _counter("tasks_retried", "Tasks to be tried again after an unexpected error.", worker.retried)
    yield _counter("tasks_dead_lettered", "Tasks that nobody can work on.", worker.dead_lettered)
    yield _counter("tasks_given_back", "Tasks given back because we stop.", worker.given_back)
    yield _gauge("tasks_in_flight", "Tasks in our hands.", worker.in_flight)
    yield _gauge("held", "Whether we wait for a server to come back.", worker.held)
    yield _histogram("task_duration_seconds", "Tasks, but for plain steps done at once.", worker.durations)
    steps = CounterMetricFamily("rune_steps", "Steps that ended, or rest.", labels=("type", "outcome"))
    for (type, outcome), count in worker.steps.items():
        name = outcome.__name__
        steps.add_metric((type.name, _OUTCOMES.get(name, name.lower())), count)
    yield steps


def _of_scheduler(scheduler: Scheduler) -> Iterator[Metric]:
    yield _counter("timers_claimed", "Timers taken because they were due.", scheduler.claimed)
    yield _counter("timers_published", "Timers whose Tasks were published.", scheduler.published)
    yield _histogram("timer_lateness_seconds", "From due to published.", scheduler.lateness)


def _counter(name: str, about: str, number: int) -> Metric:
    return CounterMetricFamily(f"rune_{name}", about, number)


def _gauge(name: str, about: str, number: int | bool) -> Metric:
    return GaugeMetricFamily(f"rune_{name}", about, int(number))


def _histogram(name: str, about: str, histogram: Histogram) -> Metric:
    buckets = [
        ("+Inf" if bound == math.inf else str(float(bound)), float(count))
        for bound, count in histogram.buckets()
    ]
    return HistogramMetricFamily(f"rune_{name}", about, buckets=buckets, sum_value=histogram.total)


@asynccontextmanager
async def serving(metrics: Metrics, host: str, port: int) -> AsyncIterator[None]:
    """Serve /metrics, /health/live and /health/ready."""
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)

    async def numbers(request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": _MEDIA_TYPE})

    async def live(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def ready(request: web.Request) -> web.Response:
        troubles = await metrics.troubles()
        said = {"status": "unavailable" if troubles else "ok", "troubles": troubles}
        return web.json_response(said, status=503 if troubles else 200)

    app = web.Application()
    routes = (("/metrics", numbers), ("/health/live", live), ("/health/ready", ready))
    app.add_routes([web.get(path, handler) for path, handler in routes])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await _listen(runner, host, port)
        yield
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise InfrastructureError(f"metrics cannot be served at {host}:{port}: {why}") from error
