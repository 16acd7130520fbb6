"""A worker at a desk: its engine only writes down what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from rune.backends.memory import MemoryBroker, MemoryState
from rune.core.errors import EngineError
from rune.core.messages import Task
from rune.core.ports import Delivery
from rune.settings import Settings
from rune.worker import Worker

__all__ = ["Desk", "FakeEngine"]


class FakeEngine:
    """Does with each delivery what the test says."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.ended: dict[str, None] = {}
        self.paused: frozenset[str] = frozenset()
        self.on_end: Callable[[str], None] = lambda execution: None
        self.failed: list[tuple[str, str]] = []
        self.handled: list[str] = []
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.bodies: dict[str, Any] = {}

    async def handle(self, delivery: Delivery) -> None:
        name = delivery.task.current_node
        self.entered.put_nowait(name)
        body = self.bodies.get(name)
        if isinstance(body, BaseException):
            raise body
        if body is not None:
            await body(delivery)
            return
        if name.startswith("slow"):
            await self.gate.wait()
        self.handled.append(name)
        await self.broker.finish(delivery)

    async def fail(self, task: Task, error: EngineError) -> bool:
        self.failed.append((task.current_node, error.message))
        return True


class Desk:
    def __init__(self, enduring: bool = False, ready: Any = None, **settings: Any) -> None:
        self.broker = MemoryBroker()
        self.state = MemoryState()
        self.engine = FakeEngine(self.broker)
        self.settings = Settings(**settings)
        self.worker = Worker(
            self.engine,  # type: ignore[arg-type]
            self.broker,
            self.state,
            self.settings,
            enduring=enduring,
            ready=ready,
        )

    async def publish(self, *names: str, execution: str = "exec") -> None:
        await self.broker.publish(
            [
                Task(workflow_id="w", execution_id=execution, current_node=name, accumulated_context={})
                for name in names
            ]
        )

    async def entered(self, *names: str) -> None:
        """Wait until the engine has these in hand."""
        seen = {await self.engine.entered.get() for _ in names}
        assert seen == set(names)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.worker.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until the broker holds nothing."""
        await self.until(lambda: not self.broker._queue and not self.broker._taken)

    async def until(self, come: Callable[[], bool]) -> None:
        """Let the worker work until this has come, but not for ever."""
        async with asyncio.timeout(2):
            while not come():
                await asyncio.sleep(0)

    def queued(self) -> list[str]:
        return sorted(entry[2].current_node for entry in self.broker._queue)
