"""Whoever waits here for the end of executions that were called, and how they hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

__all__ = ["Hearing"]

_FIRST_REST, _LONGEST_REST = 0.02, 1.0
"""Seconds between two looks for what another worker may have told."""

T = TypeVar("T")


class Hearing(Generic[T]):
    """Looks for the ends of all calls that are waited for, with one question an execution.

    `find` gives those of an execution's calls that have ended.
    """

    def __init__(self, find: Callable[[str, Sequence[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._find = find
        self._waiting: dict[str, dict[str, list[asyncio.Future[T]]]] = {}
        """Who waits, by execution and key."""
        self._sooner = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def hear(self, execution: str, key: str) -> T:
        """Wait for the end of a call."""
        heard: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution, {}).setdefault(key, []).append(heard)
        self._sooner.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            return await heard
        finally:
            self._leave(execution, key, heard)

    def told(self, execution: str, key: str) -> None:
        """A call has ended: look now, if anybody waits for it."""
        if key in self._waiting.get(execution, {}):
            self._sooner.set()

    def _leave(self, execution: str, key: str, heard: asyncio.Future[T]) -> None:
        calls = self._waiting[execution]
        calls[key].remove(heard)
        if not calls[key]:
            del calls[key]
        if not calls:
            del self._waiting[execution]
        if not self._waiting and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        rest = _FIRST_REST
        while True:
            if self._sooner.is_set():
                self._sooner.clear()
                rest = _FIRST_REST
            await asyncio.gather(*(self._ask(execution) for execution in list(self._waiting)))
            try:
                async with asyncio.timeout(rest):
                    await self._sooner.wait()
            except TimeoutError:
                rest = min(2 * rest, _LONGEST_REST)

    async def _ask(self, execution: str) -> None:
        """Tell those who wait what there is to tell; that State is out of reach, too."""
        calls = self._waiting.get(execution, {})
        asked = {key: list(waiting) for key, waiting in calls.items()}
        try:
            ended = await self._find(execution, list(asked))
        except Exception as error:  # noqa: BLE001 - whoever waits knows what to do about it
            for waiting in asked.values():
                for heard in waiting:
                    if not heard.done():
                        heard.set_exception(error)
            return
        for key, end in ended.items():
            for heard in asked[key]:
                if not heard.done():
                    heard.set_result(end)
