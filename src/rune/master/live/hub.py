"""Who watches what: one tail for each execution that somebody looks at, shared by all who do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from rune.master.live.framing import Framing
from rune.master.live.tail import Source, Tail
from rune.master.live.view import Scopes

__all__ = ["Hub", "TooMany", "Watch"]

_LINGER = 10.0
"""Seconds a tail goes on after the last viewer has left, for the one who comes back."""


class TooMany(Exception):
    """Somebody has as many streams open as anybody may."""


class Hub:
    """The tails of this process."""

    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._most = most
        self._tails: dict[str, tuple[Tail, asyncio.Task[None]]] = {}
        self._seats: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """How many streams there are."""
        return self._seats.total()

    @contextmanager
    def seat(self, who: str) -> Iterator[None]:
        """One of the streams that somebody may have open at the same time; TooMany if that was the last."""
        if self._seats[who] >= self._most:
            raise TooMany
        self._seats[who] += 1
        try:
            yield
        finally:
            self._seats[who] -= 1
            if not self._seats[who]:
                del self._seats[who]

    def nudge(self, executions: Iterable[str]) -> None:
        """Something was recorded of these executions."""
        for execution in executions:
            if execution in self._tails:
                self._tails[execution][0].nudge()

    @asynccontextmanager
    async def watch(
        self, execution: str, scopes: Scopes, framing: Framing, last: int | None = None
    ) -> AsyncIterator[Watch]:
        """Watch an execution, from the event `last` on if that is not long ago."""
        tail = self._tail(execution)
        watch = Watch(tail, scopes, framing, last)
        tail.viewers[scopes] += 1
        tail.nudge()
        try:
            yield watch
        finally:
            watch.leave()

    def _tail(self, execution: str) -> Tail:
        if execution not in self._tails:
            tail = Tail(self._source, execution)
            self._tails[execution] = tail, asyncio.create_task(self._run(tail))
        return self._tails[execution][0]

    async def _run(self, tail: Tail) -> None:
        running = asyncio.create_task(tail.run())
        try:
            idle = 0.0
            while idle < _LINGER and not running.done():
                await asyncio.wait([running], timeout=1.0)
                idle = 0.0 if tail.viewers else idle + 1.0
        finally:
            # Whoever comes from now on gets a tail of their own.
            del self._tails[tail.execution]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        """End all tails, and so all streams."""
        tasks = [task for _, task in self._tails.values()]
        for tail, task in list(self._tails.values()):
            tail.close()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Watch:
    """One viewer's place: what they look at, and how much of it they have been told."""

    def __init__(self, tail: Tail, scopes: Scopes, framing: Framing, last: int | None) -> None:
        self._tail = tail
        self._scopes = scopes
        self._framing = framing
        self._seq = last
        """What the viewer knows; None is nothing."""
        self.ended = False

    def look_at(self, scopes: Scopes) -> None:
        """Look at other splits: everything is told anew."""
        self.leave()
        self._scopes = scopes
        self._seq = None
        self._tail.viewers[scopes] += 1
        self._tail.nudge()

    def leave(self) -> None:
        """Look at nothing any more."""
        self._tail.viewers[self._scopes] -= 1
        if not self._tail.viewers[self._scopes]:
            del self._tail.viewers[self._scopes]

    async def next(self, timeout: float) -> bytes | None:
        """The next event; None if there is none for so long."""
        while not self.ended:
            view = self._tail.view
            if self._tail.closed:
                self.ended = True
                return None
            if self._tail.has(self._scopes) and self._seq != view.seq and view.seq >= 0:
                return self._event()
            if self._tail.over:
                self.ended = True
                return view.end(self._framing)
            if not await self._tail.news(timeout):
                return None
        return None

    def _event(self) -> bytes:
        view, since = self._tail.view, self._seq
        self._seq = view.seq
        change = None
        if since is not None and since < view.seq:
            change = view.change(self._framing, since, self._scopes)
        return change or view.snapshot(self._framing, self._scopes)
