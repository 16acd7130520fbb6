"""Doing together what is asked for one by one: those who come while others are served share the next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rune.core.errors import InfrastructureError, RuneError

__all__ = ["Grouped"]

A = TypeVar("A")
B = TypeVar("B")


class Grouped(Generic[A, B]):
    """Answers single questions by asking many at once."""

    def __init__(self, work: Callable[[list[A]], Awaitable[Sequence[B]]], most: int = 100) -> None:
        """`work` answers up to `most` questions, in their order; it may be asked again for each alone."""
        self._work = work
        self._most = most
        self._coming: list[tuple[A, asyncio.Future[B]]] = []
        self._turn: asyncio.Task[None] | None = None

    async def ask(self, question: A) -> B:
        """The answer to one question."""
        future: asyncio.Future[B] = asyncio.get_running_loop().create_future()
        self._coming.append((question, future))
        if self._turn is None:
            self._turn = asyncio.create_task(self._take_turns())
        return await future

    async def _take_turns(self) -> None:
        some: list[tuple[A, asyncio.Future[B]]] = []
        try:
            while self._coming:
                some, self._coming = self._coming[: self._most], self._coming[self._most :]
                if not await self._answer(some):
                    # One of them is the trouble, or all: each finds out by itself.
                    for each in some:
                        await self._answer([each])
        finally:
            self._turn = None
            # Nobody is left waiting when we are stopped.
            left, self._coming = self._coming, []
            for _, future in (*some, *left):
                future.cancel()

    async def _answer(self, some: list[tuple[A, asyncio.Future[B]]]) -> bool:
        try:
            answers = await self._work([question for question, _ in some])
        except Exception as error:  # noqa: BLE001 - whoever asked is told, whatever it is
            if len(some) > 1 and isinstance(error, RuneError) and not isinstance(error, InfrastructureError):
                return False
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
            return True
        for (_, future), answer in zip(some, answers, strict=True):
            # Whoever asked may have gone.
            if not future.done():
                future.set_result(answer)
        return True
