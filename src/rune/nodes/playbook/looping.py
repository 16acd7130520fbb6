"""A loop on one worker: its elements as they are handed out, and what its iterations leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any

from rune.core.errors import ErrorInfo, InfrastructureError, NodeError
from rune.core.node import StepContext
from rune.core.playbook.program import Reducer
from rune.nodes._results import Results
from rune.nodes.playbook.shared import Shared

__all__ = ["Collected", "Supply", "side_by_side"]

_AHEAD = 1000
"""Results that wait for the one before them, at most."""


class Supply:
    """The elements of a loop, for whoever is free; after a failure there are no more.

    `room` waits until there is room for the result of the element with an index.
    """

    def __init__(self, items: AsyncIterator[Any], room: Callable[[int], Awaitable[None]]) -> None:
        self.failure: ErrorInfo | None = None
        self._items = items
        self._room = room
        self._taken = 0
        # Whoever takes an element may have to wait until it is read, and the others wait behind.
        self._turn = asyncio.Lock()

    def fail(self, error: ErrorInfo) -> None:
        """Hand out no more; the first failure counts."""
        self.failure = self.failure or error

    async def following(self) -> tuple[int, Any] | None:
        """The next element and its index; None where there is none."""
        async with self._turn:
            await self._room(self._taken)
            if self.failure is not None:
                return None
            try:
                item = await anext(self._items)
            except StopAsyncIteration:
                return None
            except NodeError as error:
                self.fail(ErrorInfo(f"`loop.in`: {error.message}", error.code, error.details))
                return None
            self._taken += 1
            return self._taken - 1, item


class Collected:
    """What iterations leave, which may end in any order, put together in that of the elements."""

    def __init__(self, context: StepContext, reducers: Mapping[str, Reducer]) -> None:
        self._context = context
        self._reducers = reducers
        self._results = Results(context)
        self._shared = Shared(context, reducers)
        self._waiting: dict[int, tuple[bytes, Mapping[str, Any]]] = {}
        self._following = 0
        self._moved = asyncio.Condition()

    @property
    def error(self) -> ErrorInfo | None:
        """Why something that was to be shared cannot be."""
        return self._shared.error

    async def room(self, index: int, in_flight: int) -> None:
        """Wait until the result of this element would not have to wait behind too many others."""
        ahead = max(_AHEAD, in_flight)
        if index >= self._following + ahead:
            async with self._moved:
                await self._moved.wait_for(lambda: index < self._following + ahead)

    async def put(self, index: int, result: bytes, shared: Mapping[str, Any]) -> None:
        """What one iteration gave, as JSON, and what it wrote for all."""
        self._waiting[index] = result, shared
        # To add one may take a while, and the next must not overtake it.
        async with self._moved:
            while self._following in self._waiting:
                result, shared = self._waiting.pop(self._following)
                self._following += 1
                await self._results.add(result)
                await self._shared.add(shared)
            self._moved.notify_all()

    async def whole(self) -> dict[str, Any]:
        """The result of the loop."""
        made = {"results": await self._results.whole(), "count": self._results.count}
        return {**made, "shared": await self._shared.whole()} if self._reducers else made


async def side_by_side(many: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do the same several times at once; what one raises ends the others, and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(many):
                group.create_task(_telling(work))
    except BaseExceptionGroup as several:
        # An outage comes first: it passes, and the step is run again.
        raised = sorted(several.exceptions, key=lambda error: not isinstance(error, InfrastructureError))
        raise raised[0] from None


async def _telling(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await work()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # A group would take it for one that it has cancelled itself.
        raise RuntimeError("what it waited for was cancelled") from error
