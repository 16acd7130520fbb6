"""A client that outlives outages: every call is repeated until it has an answer.

Calls must therefore be such as may be repeated; all our scripts are.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rune.backends.redis.address import Address, Server
from rune.backends.redis.connection import Connection, ConnectionLost, ReplyError
from rune.backends.redis.routes import Cluster, Routes, Single
from rune.backends.redis.scripts import ALL, Script, load
from rune.core.errors import InfrastructureError
from rune.core.histogram import Histogram

__all__ = ["Client", "Trouble"]

_log = logging.getLogger("rune.redis")
_FIRST_REST, _LONGEST_REST = 0.02, 2.0
_LATER = frozenset(
    ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")
)
"""What a server says that will be able to serve us later, or whose successor will."""
_DURATIONS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

Argument = str | bytes | int | float
Command = tuple[Argument, ...]
Trouble = (OSError, TimeoutError, ConnectionLost)
"""What is waited out."""


class Client:
    """Calls commands and scripts, on whichever server has their key."""

    def __init__(self, address: Address, patience: float | None = None) -> None:
        self.up = asyncio.Event()
        """Set while Redis answers."""
        self.durations = Histogram(_DURATIONS)
        """Seconds from each call to its reply."""
        self._address = address
        self._patience = patience
        self._routes: Routes = Cluster(address) if address.kind == "cluster" else Single(address)
        self._scripts = {load(name).sha: load(name) for name in ALL}
        self._away = False
        self._probing: asyncio.Task[None] | None = None
        self.probe: Callable[[], Awaitable[object]] = self._ping
        """A call that succeeds when Redis is of use again."""

    @property
    def connections(self) -> int:
        """How many connections were made so far: whoever sees it grow has been cut off in between."""
        return self._routes.made

    async def call(self, key: str, *command: Argument) -> Any:
        """The reply to a command on `key`, however long it takes, or for as long as patience lasts."""
        since = time.perf_counter()
        connection = self._routes.ready(key)
        problem: Exception | None = None
        reply = None
        if connection is not None:
            try:
                reply = await connection.send(*command)
            except ConnectionLost as error:
                problem = error
        if isinstance(reply, ReplyError):
            problem = reply
        if connection is None or problem is not None:
            reply = await self._insist(key, command, problem)
        self.durations.add(time.perf_counter() - since)
        return reply

    async def script(self, script: Script, keys: tuple[str, ...], *arguments: Argument) -> Any:
        """The answer of a script; `keys` are all in one slot."""
        return await self.call(keys[0], "EVALSHA", script.sha, len(keys), *keys, *arguments)

    async def another(self, key: str) -> Connection:
        """A connection of one's own to the server of `key`."""
        return await (await self._routes.link(key)).another()

    async def close(self) -> None:
        """End whatever goes on."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        await self._routes.close()

    async def _ping(self) -> None:
        await self.call("", "PING")

    # --- trouble -------------------------------------------------------------------------------------------

    async def _insist(self, key: str, command: Command, problem: Exception | None = None) -> Any:
        since = time.monotonic()
        rest = _FIRST_REST
        while True:
            if problem is not None and not await self._remedied(problem, command):
                self._say(problem)
                if self._patience is not None and time.monotonic() - since + rest > self._patience:
                    raise InfrastructureError(f"Redis at {self._address} is out of reach: {problem}")
                await asyncio.sleep(rest * random.uniform(0.5, 1.0))
                rest = min(rest * 2, _LONGEST_REST)
            try:
                reply = await self._try(key, command, problem)
            except Trouble as error:
                problem = error
                continue
            if not isinstance(reply, ReplyError):
                self._came_back()
                return reply
            problem = reply

    async def _try(self, key: str, command: Command, problem: Exception | None) -> Any:
        if _word(problem) == "ASK":
            # The slot is on its way to another server, and this key has arrived.
            connection = await (await self._routes.other(_named(problem))).connection()
            asking, reply = connection.send("ASKING"), connection.send(*command)
            await asking
            return await reply
        connection = await (await self._routes.link(key)).connection()
        if _word(problem) == "NOSCRIPT":
            await connection.send("SCRIPT", "LOAD", self._scripts[str(command[1])].text)
        return await connection.send(*command)

    async def _remedied(self, problem: Exception, command: Command) -> bool:
        """Whether it makes sense to try again at once; an error that time does not heal is raised."""
        if not isinstance(problem, ReplyError):
            self._routes.doubt()
            return False
        word = _word(problem)
        if word in ("ASK", "NOSCRIPT"):
            return True
        if word in ("MOVED", "READONLY"):
            try:
                await self._routes.refresh()
            except Trouble:
                return False
            return word == "MOVED"
        if word in _LATER:
            return False
        raise problem

    def _say(self, problem: Exception) -> None:
        if not self._away:
            self._away = True
            self.up.clear()
            _log.warning("Redis at %s is out of reach: %s; waiting for it", self._address, _reason(problem))
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Notice that Redis is back also if nobody else calls, because all wait for it to be `up`."""
        while self._away:
            try:
                await self.probe()
            except (InfrastructureError, ReplyError):
                await asyncio.sleep(_LONGEST_REST)

    def _came_back(self) -> None:
        if self._away:
            self._away = False
            _log.warning("Redis at %s is back", self._address)
        self.up.set()


def _word(problem: Exception | None) -> str:
    return str(problem).partition(" ")[0] if isinstance(problem, ReplyError) else ""


def _named(problem: Exception | None) -> Server:
    """The server that a reply such as `ASK 3999 127.0.0.1:6381` names."""
    host, _, port = str(problem).split(" ")[2].rpartition(":")
    return Server(host, int(port))


def _reason(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
