"""The runtime of `rune master`: workers and schedulers elsewhere, behind RabbitMQ and Redis."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rune.core.holding import Member
from rune.core.messages import CompletionMessage
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.distributed import connect, pause, resume
from rune.engine import Engine
from rune.engine.running import Runner
from rune.formats.definition import compile_definition
from rune.master.runtime import QueueDepth, StatusBatch
from rune.master.steering import Steering
from rune.settings import Settings

if TYPE_CHECKING:
    from rune.backends.rabbitmq import RabbitBroker
    from rune.backends.redis import RedisState

__all__ = ["Remote"]

_STATUSES = 100
"""Messages with statuses that are held until they are stored."""


class Remote(Steering):
    """Talks to workers and schedulers through RabbitMQ and Redis."""

    def __init__(self, engine: Engine, broker: RabbitBroker, state: RedisState) -> None:
        super().__init__(engine, state, broker)
        self._rabbit = broker
        self._redis = state

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, registry: Registry) -> AsyncIterator[Remote]:
        """Connect to the servers that the settings name."""

        def compiled(definition: bytes) -> Workflow:
            return compile_definition(definition, registry)

        async with connect(settings) as (broker, state):
            # It starts executions and runs no node: it needs neither services nor credentials.
            runner = Runner(settings, time.time, {}, Credentials(None))
            yield cls(Engine(state, broker, compiled, runner, settings, time.time), broker, state)

    async def pause(self, execution: str) -> bool:
        """See `Runtime.pause`; all workers are told."""
        return await pause(self._rabbit, self._redis, execution)

    async def resume(self, execution: str) -> bool:
        """See `Runtime.resume`."""
        await resume(self._rabbit, self._redis, execution)
        return (await self.standings([execution])).get(execution) == "alive"

    # --- listening ---

    async def statuses(self) -> AsyncIterator[StatusBatch]:
        """Statuses as they come, alone or many to a message; acknowledged once they are stored."""
        async for statuses, settle in self._rabbit.status_batches(_STATUSES):
            yield StatusBatch(statuses, _later(settle))

    def completions(self) -> AsyncIterator[CompletionMessage]:
        """See `Runtime.completions`."""
        return self._rabbit.completions()

    async def completed(self, completion: CompletionMessage) -> None:
        """See `Runtime.completed`."""
        await self._rabbit.completed(completion)

    # --- the system ---

    async def queues(self) -> list[QueueDepth]:
        """The queues that everybody has, and those that workers say they take from."""
        from rune.backends.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, STATUS, TIMEOUT

        pools = {queue for member in await self.members() for queue in member.queues}
        names = dict.fromkeys([EXECUTION, TIMEOUT, *sorted(pools), STATUS, COMPLETION, DEAD])
        found = await self._rabbit.depths(list(names))
        return [QueueDepth(name, ready, consumers) for name, (ready, consumers) in found.items()]

    async def members(self) -> list[Member]:
        """See `Runtime.members`."""
        return await self._redis.members.all()


def _later(settle: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def done() -> None:
        settle()

    return done
