"""Which connection a key's calls take: one server's, the sentinels' choice, or a cluster's by slot."""

from __future__ import annotations

import asyncio
from binascii import crc_hqx
from collections.abc import Awaitable, Callable
from typing import Protocol

from rune.backends.redis.address import Address, Server, ask_sentinels, connect
from rune.backends.redis.connection import Connection, ConnectionLost
from rune.backends.redis.scripts import ALL, load

__all__ = ["Cluster", "Link", "Routes", "Single", "slot_of"]

_SLOTS = 16384


class Link:
    """One server's connection, made anew when it is needed and broken."""

    def __init__(self, address: Address, locate: Callable[[], Awaitable[Server]]) -> None:
        self._address = address
        self._locate = locate
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self.made = 0
        """How many connections there were."""

    @property
    def ready(self) -> Connection | None:
        """The connection, if it stands."""
        connection = self._connection
        return connection if connection is not None and connection.lost is None else None

    async def connection(self) -> Connection:
        """The connection; however many ask, it is made once."""
        ready = self.ready
        if ready is not None:
            return ready
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Connection:
        scripts = tuple(load(name).text for name in ALL)
        self._connection = await connect(await self._locate(), self._address, scripts=scripts)
        self.made += 1
        return self._connection

    async def another(self) -> Connection:
        """A second connection to the same server, for whoever asked."""
        return await connect(await self._locate(), self._address)

    def drop(self) -> None:
        """Have the next call connect anew."""
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """End whatever goes on."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        self.drop()


class Routes(Protocol):
    """Where calls go."""

    def ready(self, key: str) -> Connection | None:
        """The connection for a key, if it stands."""

    async def link(self, key: str) -> Link:
        """The link for a key."""

    async def other(self, server: Server) -> Link:
        """The link to a server that another one named."""

    async def refresh(self) -> None:
        """Find out anew which server has what."""

    def doubt(self) -> None:
        """A server is out of reach: another may have taken its place."""

    @property
    def made(self) -> int:
        """How many connections there were."""

    async def close(self) -> None:
        """End whatever goes on."""


class Single:
    """All keys on one server: the URL's, or whichever the sentinels name."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._link = Link(address, self._locate)

    async def _locate(self) -> Server:
        if self._address.kind == "sentinel":
            return await ask_sentinels(self._address)
        return self._address.servers[0]

    def ready(self, key: str) -> Connection | None:
        return self._link.ready

    async def link(self, key: str) -> Link:
        return self._link

    async def other(self, server: Server) -> Link:
        return self._link

    async def refresh(self) -> None:
        self._link.drop()

    def doubt(self) -> None:
        pass  # whoever connects anew asks the sentinels

    @property
    def made(self) -> int:
        return self._link.made

    async def close(self) -> None:
        await self._link.close()


class Cluster:
    """Keys by slot, on the servers that the cluster names."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._links: dict[Server, Link] = {}
        self._owners: list[Server | None] = [None] * _SLOTS
        self._known = False

    def _to(self, server: Server) -> Link:
        link = self._links.get(server)
        if link is None:

            async def locate() -> Server:
                return server

            link = self._links[server] = Link(self._address, locate)
        return link

    def ready(self, key: str) -> Connection | None:
        owner = self._owners[slot_of(key)]
        link = self._links.get(owner) if owner is not None else None
        return link.ready if link is not None else None

    async def link(self, key: str) -> Link:
        if not self._known:
            await self.refresh()
        owner = self._owners[slot_of(key)]
        if owner is None:
            self._known = False
            raise ConnectionLost(f"no server of the cluster has the slot of {key}")
        return self._to(owner)

    async def other(self, server: Server) -> Link:
        return self._to(server)

    def doubt(self) -> None:
        self._known = False

    async def refresh(self) -> None:
        trouble: Exception = ConnectionLost("no server of the cluster answers")
        for server in dict.fromkeys((*self._links, *self._address.servers)):
            try:
                reply = await (await self._to(server).connection()).send("CLUSTER", "SLOTS")
            except (OSError, TimeoutError, ConnectionLost) as error:
                trouble = error
                continue
            if not isinstance(reply, list):
                trouble = ConnectionLost(str(reply))
                continue
            for first, last, master, *_ in reply:
                # A server that does not know its own name leaves it out.
                host = master[0].decode() if master[0] else server.host
                owner = Server(host, int(master[1]))
                self._owners[first : last + 1] = [owner] * (last + 1 - first)
            self._known = True
            return
        raise trouble

    @property
    def made(self) -> int:
        return sum(link.made for link in self._links.values())

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()


def slot_of(key: str) -> int:
    """The slot of a key: by its hash tag, if it has one."""
    start = key.find("{")
    if start >= 0:
        stop = key.find("}", start + 1)
        if stop > start + 1:
            key = key[start + 1 : stop]
    return crc_hqx(key.encode(), 0) % _SLOTS
