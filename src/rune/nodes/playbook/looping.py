"""A loop on one worker: its elements as they are handed out, and what its iterations leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Any

from rune.core.errors import ErrorInfo, NodeError
from rune.core.node import StepContext
from rune.core.playbook.pipeline import Ended
from rune.core.playbook.program import Reducer
from rune.nodes._results import Results, kept
from rune.nodes.playbook.shared import Shared

__all__ = ["Collected", "Elements"]


class Elements:
    """The elements of a loop, for whoever is free; after a failure there are no more."""

    def __init__(self, items: AsyncIterator[Any]) -> None:
        self.failure: ErrorInfo | None = None
        self._items = items
        self._taken = count()
        # Whoever takes an element may have to wait until it is read, and the others wait behind.
        self._turn = asyncio.Lock()

    def fail(self, error: ErrorInfo) -> None:
        """Hand out no more; the first failure counts."""
        self.failure = self.failure or error

    async def following(self) -> tuple[int, Any] | None:
        """The next element and its index; None where there is none."""
        async with self._turn:
            if self.failure is not None:
                return None
            try:
                item = await anext(self._items)
            except StopAsyncIteration:
                return None
            except NodeError as error:
                self.fail(ErrorInfo(f"`loop.in`: {error.message}", error.code, error.details))
                return None
            return next(self._taken), item


class Collected:
    """What iterations leave, which may end in any order, put together in that of the elements."""

    def __init__(self, context: StepContext, reducers: Mapping[str, Reducer]) -> None:
        self._context = context
        self._reducers = reducers
        self._results = Results(context)
        self._shared = Shared(context, reducers)
        self._waiting: dict[int, tuple[bytes, Mapping[str, Any]]] = {}
        self._following = 0
        self._turn = asyncio.Lock()

    @property
    def error(self) -> ErrorInfo | None:
        """Why something that was to be shared cannot be."""
        return self._shared.error

    async def put(self, index: int, ended: Ended, shared: Mapping[str, Any]) -> None:
        """How one iteration came out; what a failed one wrote for all does not count."""
        wrote = shared if ended.error is None else {}
        self._waiting[index] = bytes(await kept(self._context, ended.result)), wrote
        # To add one may take a while, and the next must not overtake it.
        async with self._turn:
            while self._following in self._waiting:
                result, wrote = self._waiting.pop(self._following)
                self._following += 1
                await self._results.add(result)
                await self._shared.add(wrote)

    async def whole(self) -> dict[str, Any]:
        """The result of the loop."""
        made = {"results": await self._results.whole(), "count": self._results.count}
        return {**made, "shared": await self._shared.whole()} if self._reducers else made
