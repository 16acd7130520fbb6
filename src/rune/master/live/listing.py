"""The list of executions, live: the newest ones, those that run, and those that have just ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from rune.core.errors import InfrastructureError
from rune.history.executions import Execution
from rune.master.live.framing import frame
from rune.master.views import summary

__all__ = ["ListWatch", "Listing"]

_log = logging.getLogger("rune.master")

_PACE = 0.5
"""Seconds between two events at least."""
_LOOK = 1.0
"""Seconds after which the list is read unasked: another master may have recorded something."""


class Listing:
    """The executions that a list shows, read again and again while somebody looks, once for all who do."""

    def __init__(self, read: Callable[[], Awaitable[Iterable[Execution]]]) -> None:
        self._read = read
        self._round = 0
        """Rises when all who watch are sent away."""
        self._version = 0
        self._shown: dict[str, tuple[int, dict[str, Any]]] = {}
        """Each execution, with the version in which it became what it is."""
        self._gone: dict[str, int] = {}
        self._viewers = 0
        self._running: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self._news = asyncio.Event()
        self._made: dict[int, bytes] = {}

    def nudge(self) -> None:
        """Something was recorded."""
        self._nudged.set()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[ListWatch]:
        """Watch the list."""
        self._viewers += 1
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        try:
            yield ListWatch(self)
        finally:
            self._viewers -= 1
            if not self._viewers:
                await self._stop()

    async def close(self) -> None:
        """End all streams, and read no more."""
        self._round += 1
        self._news.set()
        self._news.clear()
        await self._stop()

    async def _stop(self) -> None:
        running, self._running = self._running, None
        self._version, self._shown, self._gone = 0, {}, {}
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def round(self) -> int:
        """Whoever came in another one is to leave."""
        return self._round

    async def changed(self, round: int, since: int, timeout: float) -> bool:
        """Wait until there is a later version, or another round; False if there is none for so long."""
        try:
            async with asyncio.timeout(timeout):
                while self._version == since and self._round == round:
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def event(self, since: int) -> tuple[int, bytes]:
        """What to tell somebody who knows a version, 0 being none; and the version they know then."""
        made = self._made.get(since)
        if made is None:
            changed = [shown for version, shown in self._shown.values() if version > since]
            gone = [id for id, version in self._gone.items() if since and version > since]
            data = {"executions": changed, "gone": gone} if since else {"executions": changed}
            name = "change" if since else "snapshot"
            made = self._made[since] = frame("sse", name, str(self._version), data)
        return self._version, made

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._nudged.clear()
            try:
                self._absorb({execution.id: summary(execution) for execution in await self._read()})
            except InfrastructureError as error:
                _log.warning("the live list: %s; trying again", error)
            await asyncio.sleep(max(0.0, began + _PACE - loop.time()))
            try:
                async with asyncio.timeout(_LOOK - _PACE):
                    await self._nudged.wait()
            except TimeoutError:
                pass

    def _absorb(self, found: dict[str, dict[str, Any]]) -> None:
        version = self._version + 1
        changed = {id: s for id, s in found.items() if id not in self._shown or self._shown[id][1] != s}
        gone = self._shown.keys() - found.keys()
        if not changed and not gone and self._version:
            return
        self._version = version
        for id in gone:
            del self._shown[id]
            self._gone[id] = version
        for id, shown in changed.items():
            self._shown[id] = version, shown
            self._gone.pop(id, None)
        while len(self._gone) > 1000:
            del self._gone[next(iter(self._gone))]
        self._made.clear()
        self._news.set()
        self._news.clear()


class ListWatch:
    """One viewer of the list."""

    def __init__(self, listing: Listing) -> None:
        self.ended = False
        self._listing = listing
        self._round = listing.round
        self._version = 0

    async def next(self, timeout: float) -> bytes | None:
        """The next event; None if there is none for so long."""
        if not await self._listing.changed(self._round, self._version, timeout):
            return None
        if self._listing.round != self._round:
            self.ended = True
            return None
        self._version, event = self._listing.event(self._version)
        return event
