"""Connections and channels that are opened anew, after a rest, whenever they are lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rune.backends.rabbitmq.address import Address
from rune.backends.rabbitmq.channel import NOT_FOUND, AmqpError, Channel
from rune.backends.rabbitmq.connection import Connection, connect

__all__ = ["Lane", "Link"]

_log = logging.getLogger("rune.rabbitmq")

_FIRST_REST, _LONGEST_REST = 0.1, 10.0
_STABLE = 5.0
"""Seconds after which a loss is the first of its kind again."""


class _Rest:
    """Rests that double, with a random part, so that not everybody comes back at once."""

    def __init__(self) -> None:
        self._seconds = _FIRST_REST
        self._since = 0.0

    def opened(self) -> None:
        self._since = asyncio.get_running_loop().time()

    async def take(self) -> None:
        if self._since and asyncio.get_running_loop().time() - self._since > _STABLE:
            self._seconds = _FIRST_REST
        self._since = 0.0
        await asyncio.sleep(self._seconds * random.uniform(0.5, 1.0))
        self._seconds = min(self._seconds * 2, _LONGEST_REST)


class Link:
    """A connection that is opened anew whenever it is lost."""

    def __init__(
        self, address: Address, name: str, prepare: Callable[[Connection], Awaitable[None]] | None = None
    ) -> None:
        self._address = address
        self._name = name
        self._prepare = prepare
        self._connection: Connection | None = None
        self._opened = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect for the first time; AmqpError says why not."""
        await self._connect()
        self._keeper = _supervised(self._keep())

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and not self._connection.closed.done()

    async def connection(self) -> Connection:
        """An open connection, as soon as there is one."""
        while self._connection is None or self._connection.closed.done():
            self._opened.clear()
            await self._opened.wait()
        return self._connection

    async def close(self) -> None:
        """Say good-bye."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._connection is not None:
            await self._connection.close()

    async def _connect(self) -> None:
        connection = await connect(self._address, self._name)
        try:
            if self._prepare is not None:
                await self._prepare(connection)
        except BaseException:
            connection.abort()
            raise
        self._connection = connection
        self._opened.set()

    async def _keep(self) -> None:
        rest = _Rest()
        while True:
            assert self._connection is not None
            rest.opened()
            error = await asyncio.shield(self._connection.closed)
            _log.warning("RabbitMQ (%s): %s; connecting again", self._name, error)
            while self._connection.closed.done():
                await rest.take()
                try:
                    await self._connect()
                except AmqpError as trouble:
                    _log.warning("%s; trying again", trouble)
            _log.warning("RabbitMQ (%s): connected again", self._name)


class Lane:
    """A channel that is opened anew whenever it is lost.

    `opened` makes it ready for use; `lost` hears why it was lost: the code is 0 unless the broker refused
    something that was done on this channel.
    """

    def __init__(
        self, link: Link, opened: Callable[[Channel], Awaitable[None]], lost: Callable[[AmqpError], None]
    ) -> None:
        self._link = link
        self._opened = opened
        self._lost = lost
        self._keeper = _supervised(self._keep())

    def release(self) -> None:
        """Open it no more; the channel stays as it is."""
        self._keeper.cancel()

    async def _keep(self) -> None:
        rest = _Rest()
        said = ""
        while True:
            connection = await self._link.connection()
            try:
                channel = await connection.channel()
                await self._opened(channel)
                rest.opened()
                error = await asyncio.shield(channel.closed)
            except AmqpError as trouble:
                error = trouble
            if connection.closed.done():
                self._lost(AmqpError(str(error)))
                continue
            if str(error) != said:
                said = str(error)
                _log.warning("RabbitMQ closed a channel: %s; opening another", said)
            self._lost(error)
            if error.code == NOT_FOUND:
                # Something was deleted: connecting anew declares it again.
                connection.abort()
            await rest.take()


def _supervised(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run something that should go on for ever; say so if it does not."""
    task = asyncio.create_task(work)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.critical("a link to RabbitMQ has broken for good: this is a bug", exc_info=task.exception())
