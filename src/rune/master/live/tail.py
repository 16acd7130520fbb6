"""One loop for each execution that is watched: it reads what the history has got to know since."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from rune.core.errors import InfrastructureError
from rune.history.changes import Reading
from rune.history.items import Run, Split
from rune.master.live.view import Scopes, View

__all__ = ["Source", "Tail"]

_log = logging.getLogger("rune.master")

PACE = 0.1
"""Seconds between two events at least: ten a second."""
_PACE_EACH = 0.0005
"""Seconds more for each viewer, whom it takes time to tell."""
LOOK = 0.4
"""Seconds after which the tail looks unasked: another master may have recorded something."""
_SETTLED = 1.0
"""Seconds without news after which nothing more of an ended execution is expected."""


class Source(Protocol):
    """Where a tail reads."""

    async def read(self, execution: str, since: int, scopes: Scopes) -> Reading | None:
        """What has changed since; None if there is no such execution."""

    async def items(self, execution: str, scope: str) -> tuple[Sequence[Split], Sequence[Run]]:
        """All items of one split, and the splits around and inside of it."""


class Tail:
    """What is known of one execution, kept up to date while somebody looks."""

    def __init__(self, source: Source, execution: str) -> None:
        self.view = View()
        self.execution = execution
        self.over = False
        """Nothing more will come."""
        self.closed = False
        """Nothing more will come from here: the master stops."""
        self.viewers: Counter[Scopes] = Counter()
        self._source = source
        self._nudged = asyncio.Event()
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def nudge(self) -> None:
        """Something was recorded."""
        self._nudged.set()

    async def news(self, timeout: float) -> bool:
        """Wait until something has changed; False if nothing has for so long."""
        done, _ = await asyncio.wait([self._news], timeout=timeout)
        return bool(done)

    def has(self, scopes: Scopes) -> bool:
        """Whether these splits' items are known, and the execution at all."""
        return self.over or (self.view.seq >= 0 and scopes <= self.view.scopes.keys())

    async def run(self) -> None:
        """Keep the view up to date until the execution is over."""
        loop = asyncio.get_running_loop()
        changed_at = loop.time()
        while not self.over:
            began = loop.time()
            self._nudged.clear()
            try:
                if await self._look():
                    changed_at = loop.time()
            except InfrastructureError as error:
                _log.warning("the live view of %s: %s; trying again", self.execution, error)
            if self.view.ended and loop.time() - changed_at > _SETTLED:
                self.over = True
                self._tell()
                return
            pace = PACE + _PACE_EACH * self.viewers.total()
            await asyncio.sleep(max(0.0, began + pace - loop.time()))
            await self._rest(LOOK - pace)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._nudged.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """Send those who watch away."""
        self.closed = True
        self._tell()

    async def _look(self) -> bool:
        """Read what is new; whether anything is."""
        wanted = frozenset[str]().union(*self.viewers)
        self.view.drop(self.view.scopes.keys() - wanted)
        fresh = wanted - self.view.scopes.keys()
        seq = self.view.seq
        reading = await self._source.read(self.execution, seq, wanted - fresh)
        if reading is None:
            self.over = True
            self._tell()
            return True
        for scope in fresh:
            # Newer than `seq` does no harm.
            splits, reading.items[scope] = await self._source.items(self.execution, scope)
            reading.splits.update({split.barrier: split for split in splits})
        if reading.head.seq == seq and not fresh:
            return False
        self.view.absorb(reading)
        self._tell()
        return reading.head.seq != seq

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.get_running_loop().create_future()
        news.set_result(None)
