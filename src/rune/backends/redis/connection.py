"""One connection to one server: all calls of a turn of the event loop leave in one write."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

__all__ = ["Connection", "ConnectionLost", "ReplyError"]

ReplyError = hiredis.ReplyError
_MORE = object()
_STALL = 15.0
"""Seconds without an answer after which a connection counts as broken."""
_KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 15),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)
"""A listener sends nothing, and would else never find out that the other side is gone."""


class ConnectionLost(Exception):
    """The connection broke; whether its unanswered calls were carried out is not known."""


class Connection(asyncio.Protocol):
    """Sends commands and hands each the reply that is its turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._on_message: Callable[[Any], None] | None = None
        self._heard = 0.0
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.lost: Exception | None = None
        """Why it broke."""
        self.closed = self._loop.create_future()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        endpoint = transport.get_extra_info("socket")
        if endpoint is not None and endpoint.family != socket.AF_UNIX:
            for option, value in _KEEPALIVE:
                endpoint.setsockopt(*option, value)
        self._look()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._reader.feed(data)
        take = self._reader.gets
        waiting = self._waiting
        try:
            while (reply := take()) is not _MORE:
                if self._on_message is not None:
                    self._on_message(reply)
                    continue
                asked = waiting.popleft()
                if not asked.done():
                    asked.set_result(reply)
        except (hiredis.ProtocolError, IndexError) as error:
            self._break(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(exc or ConnectionLost("the server closed the connection"))

    # --- ours ---

    def send(self, *command: str | bytes | int | float) -> asyncio.Future[Any]:
        """Send a command with the others of this turn; its reply, an error as a value of ReplyError."""
        if self.lost is not None:
            raise ConnectionLost(str(self.lost)) from self.lost
        if not self._waiting:
            self._heard = self._loop.time()
        self._write(command)
        asked = self._loop.create_future()
        self._waiting.append(asked)
        return asked

    def subscribe(self, channel: str, on_message: Callable[[Any], None]) -> None:
        """From here on, hand all that comes to `on_message`, first that we are subscribed."""
        self._on_message = on_message
        self._write(("SUBSCRIBE", channel))

    def _write(self, command: tuple[str | bytes | int | float, ...]) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type]

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self.lost is None and self._transport is not None:
            self._transport.write(b"".join(unsent))

    def _look(self) -> None:
        """A server that hangs, or a network that drops everything, never says so."""
        if self._waiting and self._loop.time() - self._heard > _STALL:
            self._break(ConnectionLost(f"no answer for {_STALL:g} s"))
            return
        self._watch = self._loop.call_later(_STALL / 3, self._look)

    def close(self) -> None:
        """Break the connection on purpose."""
        self._break(ConnectionLost("closed"))

    def _break(self, error: Exception) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        for asked in self._waiting:
            if not asked.done():
                asked.set_exception(ConnectionLost(str(error)))
                # Whoever asked may have given up.
                asked.exception()
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)
