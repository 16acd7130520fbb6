"""Waiting for the end of executions, whichever master records it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from rune.history import History
from rune.history.executions import Execution, Executions

__all__ = ["Ending", "Endings"]

_LOOK = 1.0
"""Seconds after which a waiter looks by itself: another master may have recorded the end."""


class Ending:
    """The end of one execution, for somebody who waits for it."""

    def __init__(self, executions: Executions, execution: str) -> None:
        self._executions = executions
        self._execution = execution
        self.told = asyncio.Event()

    async def wait(self, timeout: float) -> Execution | None:
        """The execution once it has ended; None if it has not in time, or is gone."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            rest = until - loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(_LOOK, rest))):
                    await self.told.wait()
            self.told.clear()
            found = await self._executions.get(self._execution)
            if found is None or found.ended_at is not None:
                return found
            if rest <= _LOOK:
                return None


class Endings:
    """Tells those who wait when an execution has ended."""

    def __init__(self, history: History) -> None:
        self._executions = history.executions
        self._expected: dict[str, list[Ending]] = {}

    def tell(self, executions: Iterable[str]) -> None:
        """The ends of these were recorded here."""
        for execution in executions:
            for ending in self._expected.get(execution, ()):
                ending.told.set()

    @contextmanager
    def expecting(self, execution: str) -> Iterator[Ending]:
        """Be told of an end; begun before the execution is, so that it cannot be missed."""
        ending = Ending(self._executions, execution)
        expected = self._expected.setdefault(execution, [])
        expected.append(ending)
        try:
            yield ending
        finally:
            expected.remove(ending)
            if not expected:
                del self._expected[execution]
