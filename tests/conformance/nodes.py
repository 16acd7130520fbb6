"""Node types for tests: they fail on demand, count how often they run, and wait when told to."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections import Counter, defaultdict
from typing import Any, ClassVar

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

__all__ = ["TYPES", "World", "digest"]


class World:
    """What the tests' effects change: it outlives every crash of the engine."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        """How often each node's effect ran."""
        self.keys: dict[str, list[str]] = defaultdict(list)
        """The idempotency keys that each node's effect ran under, in order."""
        self.attempts: dict[str, list[int]] = defaultdict(list)
        self.saw: dict[str, list[Any]] = defaultdict(list)
        """What each node's effect was given, in order."""
        self.inside: Counter[str] = Counter()
        self.most_inside: Counter[str] = Counter()
        """How many steps of each node ran at the same time, at most."""
        self.gates: dict[str, asyncio.Event] = {}
        self.entered: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.numbers = itertools.count(1)

    def gate(self, name: str) -> asyncio.Event:
        """A gate that steps wait at until the test opens it."""
        return self.gates.setdefault(name, asyncio.Event())

    async def close(self) -> None:
        """The world goes on."""


def digest(value: Any) -> str:
    """A short name for a value, whatever it holds."""
    return hashlib.sha1(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


class Note(NodeType, kw_only=True):
    """Pure: pass on what it sees."""

    name: ClassVar = "note"
    pure: ClassVar = True
    effects: ClassVar = False

    of: Any = None

    async def run(self, context: StepContext) -> Outcome:
        return Done(self.of)


class Digest(NodeType, kw_only=True):
    """Pure: a short name of all that it sees."""

    name: ClassVar = "digest"
    pure: ClassVar = True
    effects: ClassVar = False

    of: Any = None

    async def run(self, context: StepContext) -> Outcome:
        return Done({"digest": digest(self.of)})


class Boom(NodeType, kw_only=True):
    """Pure: fail when told to."""

    name: ClassVar = "boom"
    pure: ClassVar = True
    effects: ClassVar = False

    when: bool = True
    message: str = "boom"

    async def run(self, context: StepContext) -> Outcome:
        if self.when:
            raise NodeError(self.message, "BOOM")
        return Done({"calm": True})


class Effect(NodeType, kw_only=True):
    """Change the world; fail the first `fails` attempts, and wait at a gate if one is named."""

    name: ClassVar = "effect"

    of: Any = None
    fails: int = 0
    gate: str = ""
    steps: int = 0
    """How often to let others run first."""

    async def run(self, context: StepContext) -> Outcome:
        world: World = context.service("world")
        world.runs[context.node_id] += 1
        world.keys[context.node_id].append(context.step)
        world.attempts[context.node_id].append(context.attempt)
        world.saw[context.node_id].append(self.of)
        world.inside[context.node_id] += 1
        inside = world.inside[context.node_id]
        world.most_inside[context.node_id] = max(world.most_inside[context.node_id], inside)
        world.entered[context.node_id].set()
        try:
            if self.gate:
                await world.gate(self.gate).wait()
            for _ in range(self.steps):
                await asyncio.sleep(0)
        finally:
            world.inside[context.node_id] -= 1
        if context.attempt <= self.fails:
            raise NodeError(f"failed attempt {context.attempt}", "FLAKY")
        return Done({"done": self.of, "attempt": context.attempt})


class Dice(NodeType, kw_only=True):
    """Without effects, and different each time."""

    name: ClassVar = "dice"
    effects: ClassVar = False

    async def run(self, context: StepContext) -> Outcome:
        world: World = context.service("world")
        world.runs[context.node_id] += 1
        return Done({"number": next(world.numbers)})


class Oops(NodeType, kw_only=True):
    """Raise what no node should raise."""

    name: ClassVar = "oops"
    effects: ClassVar = False

    async def run(self, context: StepContext) -> Outcome:
        raise RuntimeError("out of the blue")


TYPES = [Note, Digest, Boom, Effect, Dice, Oops]
