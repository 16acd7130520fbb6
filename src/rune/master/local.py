"""The runtime of `rune dev`: the engine in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

from rune import __version__
from rune.core.errors import InfrastructureError
from rune.core.holding import Member
from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.embedded import Embedded
from rune.master.portions import referred
from rune.master.runtime import QueueDepth, StatusBatch
from rune.master.steering import Steering

__all__ = ["Local"]

_MANY = 20_000
"""Statuses that may wait to be stored; then no Tasks are taken until half of them are."""
_MANY_BYTES = 64 << 20
"""The same for the values that they refer to."""


class Local(Steering):
    """Runs executions in this process; what waits to be stored is kept within bounds."""

    def __init__(self, embedded: Embedded) -> None:
        super().__init__(embedded.engine, embedded.state, embedded.broker)
        self._embedded = embedded
        self._since = time.time()
        self._waiting: list[NodeStatusMessage] = []
        self._taken: list[list[NodeStatusMessage]] = []
        """Batches in somebody's hands."""
        self._unstored = self._weight = 0
        self._read: dict[tuple[str, str], asyncio.Task[dict[str, bytes]]] = {}
        """Values that statuses refer to, by execution and hash: State forgets them with their execution."""
        self._more, self._end = asyncio.Event(), asyncio.Event()
        self._ended: dict[str, CompletionMessage] = {}
        """Completions that are not acknowledged."""
        embedded.listen(self._listen)
        embedded.hear(self._hear)

    async def pause(self, execution: str) -> bool:
        """See `Runtime.pause`; the worker here knows at once."""
        paused = await super().pause(execution)
        if paused:
            self._engine.paused |= {execution}
        return paused

    async def resume(self, execution: str) -> bool:
        """See `Runtime.resume`."""
        self._engine.paused -= {execution}
        return await super().resume(execution)

    async def values(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """See `Runtime.values`."""
        found: dict[str, bytes] = {}
        for hash in hashes:
            reading = self._read.get((execution, hash))
            if reading is None:
                continue
            try:
                # Whoever is stopped meanwhile is not the only one to ask.
                found |= await asyncio.shield(reading)
            except InfrastructureError:
                self._read.pop((execution, hash), None)
                raise
        rest = [hash for hash in hashes if hash not in found]
        return {**found, **(await super().values(execution, rest) if rest else {})}

    # --- listening ---

    def _listen(self, statuses: Sequence[NodeStatusMessage]) -> None:
        self._waiting += statuses
        self._unstored += len(statuses)
        for status in statuses:
            for hash, size in referred(status).items():
                self._weight += size
                self._read_early(status.execution_id, hash)
        self._more.set()
        if self._unstored > _MANY or self._weight > _MANY_BYTES:
            self._embedded.taking.clear()

    def _read_early(self, execution: str, hash: str) -> None:
        reading = super().values(execution, [hash])
        self._read[execution, hash] = asyncio.create_task(reading)

    async def statuses(self) -> AsyncIterator[StatusBatch]:
        """All that were told since the last batch, first those that somebody before did not get done with."""
        self._waiting[:0] = [status for batch in self._taken for status in batch]
        self._taken.clear()
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            batch, self._waiting = self._waiting, []
            self._taken.append(batch)
            yield StatusBatch(batch, partial(self._stored, batch))

    async def _stored(self, batch: list[NodeStatusMessage]) -> None:
        if any(batch is taken for taken in self._taken):
            self._taken = [taken for taken in self._taken if taken is not batch]
            self._unstored -= len(batch)
            for status in batch:
                for hash, size in referred(status).items():
                    self._weight -= size
                    self._read.pop((status.execution_id, hash), None)
        if self._unstored <= _MANY // 2 and self._weight <= _MANY_BYTES // 2:
            self._embedded.taking.set()

    def _hear(self, completion: CompletionMessage) -> None:
        self._ended[completion.execution_id] = completion
        self._end.set()

    async def completions(self) -> AsyncIterator[CompletionMessage]:
        """Those that nobody has acknowledged, then those to come."""
        told: dict[str, CompletionMessage] = {}
        while True:
            self._end.clear()
            for execution, completion in list(self._ended.items()):
                if told.get(execution) is not completion:
                    told[execution] = completion
                    yield completion
            told = {execution: told[execution] for execution in told.keys() & self._ended.keys()}
            await self._end.wait()

    async def completed(self, completion: CompletionMessage) -> None:
        """See `Runtime.completed`."""
        self._ended.pop(completion.execution_id, None)
        await self._embedded.acknowledge(completion)

    # --- the system ---

    async def queues(self) -> list[QueueDepth]:
        """The one queue of Tasks."""
        return [QueueDepth("tasks", await self._embedded.broker.depth(), 1)]

    async def members(self) -> list[Member]:
        """The worker and the scheduler of this process."""
        return [
            Member(
                id=f"{role}-{os.getpid()}",
                role=role,
                host=socket.gethostname(),
                pid=os.getpid(),
                since=self._since,
                seen=time.time(),
                version=__version__,
                concurrency=self._embedded.settings.concurrency if role == "worker" else 0,
                running=self._embedded.worker.in_flight if role == "worker" else 0,
            )
            for role in ("worker", "scheduler")
        ]
