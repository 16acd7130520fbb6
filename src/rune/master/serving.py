"""Serving the application over HTTP, in the event loop that the engine runs in."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from fastapi import FastAPI
from uvicorn import Config, Server

from rune.core.errors import InfrastructureError
from rune.master.app import create_app
from rune.master.security.beginning import first_admin
from rune.master.service import Master

__all__ = ["Served", "listening", "serving", "until_stopped"]

_GRACE = 3
"""Seconds that requests under way get when the server stops."""
_BACKLOG = 512
_UNREAD = 60
"""Seconds after which a connection whose other side does not read is closed by the system."""


class Served(NamedTuple):
    """Where a master is."""

    address: str
    invitation: str | None
    """Where to make the first account, while there has to be one and is none."""


@asynccontextmanager
async def serving(master: Master) -> AsyncIterator[Served]:
    """Run a master and answer requests meanwhile."""
    app = create_app(master)
    settings = master.settings
    async with master.running(), listening(app, settings.host, settings.port) as address:
        if settings.public_url is None:
            # Only now is the port known, if any was to do.
            master.triggering.address = address
        try:
            yield Served(address, await first_admin(app.state.gate, settings, address))
        finally:
            # Streams would go on for as long as the server lets them.
            await master.live.close()
            await master.listing.close()


async def until_stopped(master: Master, stop: Awaitable[object]) -> None:
    """Wait for a stop; if the engine ends first, raise what ended it."""
    broken = asyncio.ensure_future(master.broken())
    stopped = asyncio.ensure_future(stop)
    try:
        await asyncio.wait({broken, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            broken.result()
    finally:
        broken.cancel()


class _Quiet(Server):
    """A server that leaves the signals to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """Answer requests meanwhile; the address at which that is."""
    bound = _bind(host, port)
    config = Config(
        app,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )
    server = _Quiet(config)
    config.load()
    serving = asyncio.create_task(server.serve([bound]))
    try:
        yield _address(bound)
    finally:
        server.should_exit = True
        await serving


def _bind(host: str, port: int) -> socket.socket:
    # It listens from here on, so that nobody who knows the address is turned away.
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # Also what was sent to somebody who has stopped reading, and is waiting in our memory.
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD * 1000)
            bound.bind(address)
            bound.listen(_BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise InfrastructureError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    bound.setblocking(False)
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
