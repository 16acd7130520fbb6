"""Sending events as they come: over HTTP as server-sent events, or over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rune.master.live.framing import BYE, HEARTBEAT, RETRY

__all__ = ["BLOCKED", "EventStream", "Events", "converse"]

_QUIET = 15.0
"""Seconds without an event after which a sign of life is sent."""
BLOCKED = 10.0
"""Seconds somebody may take to read one event before they are cut."""
_FAREWELL = 2.0
"""Seconds for the last words to somebody who does not read."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Events(Protocol):
    """Events, one after another."""

    @property
    def ended(self) -> bool:
        """Whether there will be no more."""

    async def next(self, timeout: float) -> bytes | None:
        """The next event; None if there is none for so long."""


class EventStream(Response):
    """An answer that goes on for as long as there are events and somebody reads them."""

    def __init__(self, events: AbstractAsyncContextManager[Events]) -> None:
        super().__init__()
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._events as events:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            sending = asyncio.create_task(self._send_all(events, send))
            leaving = asyncio.create_task(_disconnected(receive))
            try:
                await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
            except TimeoutError:
                # They do not even read that: the server closes a connection whose answer has no end.
                pass
            finally:
                sending.cancel()
                leaving.cancel()
                await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_all(self, events: Events, send: Send) -> None:
        async def tell(body: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": more})

        try:
            await tell(RETRY)
            while not events.ended:
                event = await events.next(_QUIET) or HEARTBEAT
                async with asyncio.timeout(BLOCKED):
                    await tell(event)
            await tell(b"", more=False)
        except TimeoutError:
            # They may be reading again by now; if not, the connection is closed without a word.
            async with asyncio.timeout(_FAREWELL):
                await tell(BYE["sse"], more=False)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def converse(socket: WebSocket, events: Events, ask: Callable[[object], None]) -> None:
    """Send events over a WebSocket; `ask` is told what comes, and raises ValueError if it makes no sense."""
    sending = asyncio.create_task(_talk(socket, events))
    hearing = asyncio.create_task(_hear(socket, ask))
    try:
        await asyncio.wait([sending, hearing], return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, hearing):
            if task.done():
                task.result()
    except (WebSocketDisconnect, TimeoutError):
        pass
    finally:
        sending.cancel()
        hearing.cancel()
        await asyncio.gather(sending, hearing, return_exceptions=True)


async def _talk(socket: WebSocket, events: Events) -> None:
    try:
        while not events.ended:
            event = await events.next(_QUIET)
            if event is not None:
                async with asyncio.timeout(BLOCKED):
                    await socket.send_text(event.decode())
        await socket.close(1000)
    except TimeoutError:
        async with asyncio.timeout(_FAREWELL):
            await socket.send_text(BYE["ws"].decode())
            await socket.close(1013, "slow")


async def _hear(socket: WebSocket, ask: Callable[[object], None]) -> None:
    while True:
        text = await socket.receive_text()
        try:
            ask(msgspec.json.decode(text))
        except (msgspec.DecodeError, ValueError) as error:
            await socket.close(1007, str(error)[:100])
            return
