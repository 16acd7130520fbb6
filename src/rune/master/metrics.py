"""Numbers for Prometheus: requests, executions, and what waits in the queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from rune.master.runtime import Member, QueueDepth

__all__ = ["MEDIA_TYPE", "Metered", "Metrics"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_STREAMS = ("/live", "/ws")
"""Ends of routes whose duration says how long somebody watched."""


class Metrics:
    """What one master counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "rune_http_requests", "Requests.", ("method", "route", "status"), registry=self._registry
        )
        self.durations = Histogram(
            "rune_http_request_duration_seconds",
            "From a request to the end of its answer.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.started = Counter(
            "rune_executions_started",
            "Executions that were started here.",
            ("trigger",),
            registry=self._registry,
        )
        self.ended = Counter(
            "rune_executions_ended",
            "Executions whose end was recorded here.",
            ("status",),
            registry=self._registry,
        )
        self.broken = Counter(
            "rune_loop_failures", "Failures of the loops behind the API.", ("loop",), registry=self._registry
        )
        self._ready = Gauge("rune_queue_messages", "Messages that wait.", ("queue",), registry=self._registry)
        self._members = Gauge("rune_members", "Processes that take part.", ("role",), registry=self._registry)

    def look(self, queues: list[QueueDepth], members: list[Member]) -> None:
        """Take over what others know."""
        self._ready.clear()
        for queue in queues:
            self._ready.labels(queue.name).set(queue.ready)
        self._members.clear()
        for member in members:
            self._members.labels(member.role).inc()

    def text(self) -> bytes:
        """All numbers, as Prometheus reads them."""
        return generate_latest(self._registry)


class Metered:
    """Middleware that counts requests by route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            # An unknown path has no route, so that nobody can make up names for us to count.
            route = getattr(scope.get("route"), "path", "-")
            method = scope["method"] if route != "-" else "-"
            self._metrics.requests.labels(method, route, str(status)).inc()
            if not route.endswith(_STREAMS):
                self._metrics.durations.labels(method, route).observe(time.perf_counter() - begun)
