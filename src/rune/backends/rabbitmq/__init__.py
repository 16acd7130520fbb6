"""The Broker on RabbitMQ, through an AMQP 0-9-1 client of our own."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from rune.backends.rabbitmq.address import parse_url
from rune.backends.rabbitmq.broker import RabbitBroker, route
from rune.backends.rabbitmq.declaring import Declarer
from rune.backends.rabbitmq.link import Link
from rune.backends.rabbitmq.rendering import as_definitions, as_json, as_table
from rune.backends.rabbitmq.topology import (
    EXECUTION,
    TIMEOUT,
    Topology,
    describe,
    describe_pool,
    pool_queue,
)
from rune.core.messages import Task

__all__ = [
    "RabbitBroker",
    "Topology",
    "as_definitions",
    "as_json",
    "as_table",
    "describe",
    "open_rabbitmq",
    "pool_queue",
    "route",
]


@asynccontextmanager
async def open_rabbitmq(
    url: str,
    *,
    queues: Sequence[str] = (EXECUTION, TIMEOUT),
    pools: Iterable[str] = (),
    route: Callable[[Task], str] = route,
    retry_delays: Sequence[float] = (5, 25, 125),
    quorum: bool = False,
    status_batch_ms: float = 0,
    name: str = "",
) -> AsyncIterator[RabbitBroker]:
    """Connect to the broker at `url`, and declare what is missing there.

    Deliveries come from `queues`. A Task goes to the queue that `route` names: everybody's, or that of its
    pool, which is declared when there is a Task for it, so that it waits there for workers.
    """
    address = parse_url(url)
    name = name or f"rune {socket.gethostname()} {os.getpid()}"
    own = {queue.removeprefix(f"{EXECUTION}.") for queue in queues if queue not in (EXECUTION, TIMEOUT)}
    topology = describe(pools=sorted({*own, *pools}), retry_delays=retry_delays, quorum=quorum)
    declarer = Declarer(topology)
    outward = Link(address, f"{name} publishing", declarer.declare)
    inward = Link(address, f"{name} consuming", declarer.declare)

    async def open_pool(pool: str) -> None:
        await declarer.add(await outward.connection(), *describe_pool(pool, quorum=quorum))

    try:
        await outward.open()
        await inward.open()
        broker = RabbitBroker(
            outward,
            inward,
            queues=queues,
            retry_delays=retry_delays,
            route=route,
            open_pool=open_pool,
            status_rest=status_batch_ms / 1000,
        )
        try:
            yield broker
        finally:
            await broker.close()
    finally:
        await inward.close()
        await outward.close()
