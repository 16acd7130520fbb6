"""Node types for engine tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome, Sleep
from rune.nodes.aggregator import Aggregator
from rune.nodes.merge import Merge
from rune.nodes.split import Split
from rune.nodes.trigger import ManualTrigger

__all__ = ["Aggregator", "Boom", "Effect", "ManualTrigger", "Merge", "Nap", "Split", "World"]


class World:
    """What effects change."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        """The idempotency keys that effects ran under."""
        self.seen: list[Any] = []
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.rest: Callable[[Any], float] = lambda of: 0.0
        """Seconds that an effect takes, by what it is of."""

    async def close(self) -> None:
        """The world goes on."""


class Effect(NodeType, kw_only=True):
    """Change the world, once the gate is open; fail the first `fails` attempts."""

    name: ClassVar = "effect"

    of: Any = None
    fails: int = 0

    async def run(self, context: StepContext) -> Outcome:
        world: World = context.service("world")
        world.keys.append(context.step)
        world.seen.append(self.of)
        world.entered.set()
        await world.gate.wait()
        await asyncio.sleep(world.rest(self.of))
        if context.attempt <= self.fails:
            raise NodeError(f"attempt {context.attempt}", "FLAKY")
        return Done(self.of)


class Boom(NodeType, kw_only=True):
    """Fail when told to."""

    name: ClassVar = "boom"
    pure: ClassVar = True
    effects: ClassVar = False

    when: bool = True

    async def run(self, context: StepContext) -> Outcome:
        if self.when:
            raise NodeError("boom", "BOOM")
        return Done("calm")


class Nap(NodeType, kw_only=True):
    """Sleep for a while."""

    name: ClassVar = "nap"
    effects: ClassVar = False

    seconds: float = 60.0

    async def run(self, context: StepContext) -> Outcome:
        return Sleep(context.now() + self.seconds, {"slept": self.seconds})
