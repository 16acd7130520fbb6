"""Brings the topology about, as far as this user may, and uses what is there."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rune.backends.rabbitmq.channel import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, AmqpError, Channel
from rune.backends.rabbitmq.connection import Connection
from rune.backends.rabbitmq.topology import Binding, Queue, Topology
from rune.backends.rabbitmq.wire import Method

__all__ = ["DURABLE", "EXCLUSIVE", "PASSIVE", "Declarer"]

_log = logging.getLogger("rune.rabbitmq")

PASSIVE, DURABLE, EXCLUSIVE = 1, 2, 4 | 8
"""How a queue is declared; an exclusive one also goes when nobody listens to it."""


class Declarer:
    """Declares a topology on each new connection, and warns once of what is otherwise than described."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._warned: set[str] = set()

    async def declare(self, connection: Connection) -> None:
        """Declare everything; where this user may not, see that it is there."""
        declaration = _Declaration(connection, self._warn)
        for exchange in self._topology.exchanges:
            await declaration.ensure(Method.EXCHANGE_DECLARE, exchange.name, exchange.type, DURABLE, {})
        for queue in self._topology.queues:
            await declaration.ensure(Method.QUEUE_DECLARE, queue.name, DURABLE, queue.arguments)
        for binding in self._topology.bindings:
            await declaration.bind(binding)
        declaration.close()

    async def add(self, connection: Connection, queue: Queue, binding: Binding) -> None:
        """Declare a queue besides, for messages that have nowhere else to go."""
        declaration = _Declaration(connection, self._warn)
        await declaration.ensure(Method.QUEUE_DECLARE, queue.name, DURABLE, queue.arguments)
        await declaration.bind(binding)
        declaration.close()

    def _warn(self, name: str, text: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _log.warning("%s", text)


class _Declaration:
    """The declarations on one connection: each one that is refused costs the channel."""

    def __init__(self, connection: Connection, warn: Callable[[str, str], None]) -> None:
        self._connection = connection
        self._warn = warn
        self._channel: Channel | None = None
        self._may = True
        """Whether this user may create things, as far as we know."""

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    async def _call(self, method: Method, *arguments: object) -> None:
        if self._channel is None or self._channel.closed.done():
            self._channel = await self._connection.channel()
        await self._channel.call(method, 0, *arguments)

    async def ensure(self, method: Method, name: str, *rest: object) -> None:
        """Declare an exchange or a queue, or see that it is there."""
        if self._may:
            try:
                await self._call(method, name, *rest)
                return
            except AmqpError as error:
                if error.code == PRECONDITION_FAILED:
                    self._warn(name, f"{name} exists otherwise than described and is used as it is: {error}")
                    return
                if error.code != ACCESS_REFUSED:
                    raise
                self._may = False
        # A flag is the last but one: see that it is there, whatever it is like.
        *kind, _, table = rest
        try:
            await self._call(method, name, *kind, PASSIVE, table)
        except AmqpError as error:
            if error.code != NOT_FOUND:
                raise
            raise AmqpError(
                f"{name} does not exist and this user may not create it; have an administrator import "
                "what `rune topology --definitions` prints",
                error.code,
            ) from error

    async def bind(self, binding: Binding) -> None:
        """Bind a queue."""
        if not self._may:
            return
        try:
            await self._call(Method.QUEUE_BIND, binding.queue, binding.exchange, binding.key, 0, {})
        except AmqpError as error:
            if error.code != ACCESS_REFUSED:
                raise
            name = f"{binding.queue} from {binding.exchange}"
            self._warn(name, f"{name} may not be bound by this user: {error}")
