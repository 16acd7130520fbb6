"""Sending events as they come: over HTTP as server-sent events, or over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rune.core.errors import InfrastructureError
from rune.master.live.framing import BYE, HEARTBEAT, RETRY

__all__ = ["ASK", "BLOCKED", "EventStream", "Events", "MayWatch", "converse"]

MayWatch = Callable[[], Awaitable[bool]]
"""Asks whether somebody may still watch."""

_QUIET = 15.0
"""Seconds without an event after which a sign of life is sent."""
BLOCKED = 10.0
"""Seconds somebody may take to read one event before they are cut."""
ASK = 5.0
"""Seconds between two looks whether somebody may still watch."""
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

    def __init__(self, events: AbstractAsyncContextManager[Events], may_watch: MayWatch) -> None:
        super().__init__()
        self._events = events
        self._may_watch = may_watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._events as events:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            sending = asyncio.create_task(self._send_all(events, send))
            leaving = asyncio.create_task(_disconnected(receive))
            expelled = asyncio.create_task(_expelled(self._may_watch))
            try:
                await asyncio.wait([sending, leaving, expelled], return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
                elif expelled.done():
                    await _ended(sending)
                    async with asyncio.timeout(_FAREWELL):
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                # They do not even read that: the server closes a connection whose answer has no end.
                pass
            finally:
                await _ended(sending, leaving, expelled)

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


async def _expelled(may_watch: MayWatch) -> None:
    """Return when somebody who watches may not any more."""
    while True:
        await asyncio.sleep(ASK)
        try:
            if not await may_watch():
                return
        except InfrastructureError:
            # Nobody can tell now, and nothing new is told meanwhile.
            continue


async def _ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and see that they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def converse(
    socket: WebSocket, events: Events, may_watch: MayWatch, ask: Callable[[object], None]
) -> None:
    """Send events over a WebSocket; `ask` is told what comes, and raises ValueError if it makes no sense."""
    sending = asyncio.create_task(_talk(socket, events))
    hearing = asyncio.create_task(_hear(socket, ask))
    expelled = asyncio.create_task(_expelled(may_watch))
    try:
        await asyncio.wait([sending, hearing, expelled], return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, hearing):
            if task.done():
                task.result()
        if expelled.done() and not sending.done() and not hearing.done():
            await _ended(sending, hearing)
            async with asyncio.timeout(_FAREWELL):
                await socket.close(1008, "you may not watch any more")
    except (WebSocketDisconnect, TimeoutError):
        pass
    finally:
        await _ended(sending, hearing, expelled)


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
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            ask(msgspec.json.decode(message.get("text") or message.get("bytes") or b""))
        except (msgspec.DecodeError, ValueError) as error:
            await socket.close(1007, str(error)[:100])
            return
