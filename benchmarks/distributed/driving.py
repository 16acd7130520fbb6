"""Starts executions on workers that run elsewhere, and hears how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import msgspec
from msgspec import Raw

from rune.backends.rabbitmq import RabbitBroker
from rune.backends.redis import RedisState
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task
from rune.distributed import connect
from rune.settings import Settings

__all__ = ["Driver", "driver"]


class Driver:
    """A master, as far as a benchmark needs one."""

    def __init__(self, broker: RabbitBroker, state: RedisState) -> None:
        self.broker = broker
        self.state = state

    async def run(self, tasks: Sequence[Task]) -> dict[str, CompletionMessage]:
        """Start executions all at once, and wait until each has completed."""
        waiting = {task.execution_id for task in tasks}
        ended: dict[str, CompletionMessage] = {}
        heard = cast(AsyncGenerator[CompletionMessage, None], self.broker.completions())
        async with aclosing(heard) as completions:
            publishing = asyncio.create_task(self.broker.publish(tasks))
            async for completion in completions:
                await self.broker.completed(completion)
                if completion.status != "completed":
                    raise SystemExit(f"an execution {completion.status}: {completion.error}")
                if completion.execution_id in waiting:
                    ended[completion.execution_id] = completion
                if len(ended) == len(waiting):
                    break
            await publishing
        return ended

    async def hear(self) -> None:
        """Take statuses as they come, as a recorder does, for as long as nobody stops it."""
        heard = cast(AsyncGenerator[list[NodeStatusMessage], None], self.broker.statuses())
        async with aclosing(heard) as batches:
            async for _ in batches:
                pass

    async def value(self, completion: CompletionMessage, name: str) -> Any:
        """A value of the final context, wherever it is."""
        for ref in completion.refs:
            found = await self.state.get(completion.execution_id, [ref.hash])
            if ref.key == name:
                return msgspec.json.decode(found[ref.hash])
            if not ref.key:
                layer = msgspec.json.decode(found[ref.hash], type=dict[str, Raw])
                if name in layer:
                    return msgspec.json.decode(layer[name])
        return msgspec.json.decode(completion.final_context[name])


@asynccontextmanager
async def driver(broker_url: str, state_url: str) -> AsyncIterator[Driver]:
    """Somebody who starts executions there."""
    async with connect(Settings(broker_url=broker_url, state_url=state_url)) as (broker, state):
        yield Driver(broker, state)
