"""Node types for tests: they fail on demand, count how often they run, and wait when told to."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from rune.core.errors import NodeError
from rune.core.node import NodeType, Portion, Role, StepContext
from rune.core.outcome import Done, FanOut, Outcome, Policy, Source

__all__ = ["TYPES", "Gate", "World", "digest"]


class Gate(Protocol):
    """Where steps wait."""

    def set(self) -> None:
        """Let them pass."""

    def clear(self) -> None:
        """Let them wait."""


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

    def began(self, node: str, step: str, attempt: int, of: Any, gate: str = "") -> None:
        """An effect begins, and will wait at a gate if one is named."""
        self.runs[node] += 1
        self.keys[node].append(step)
        self.attempts[node].append(attempt)
        self.saw[node].append(of)
        self.inside[node] += 1
        self.most_inside[node] = max(self.most_inside[node], self.inside[node])
        self.entered[node].set()

    def ended(self, node: str) -> None:
        """An effect ends."""
        self.inside[node] -= 1

    def gate(self, name: str) -> Gate:
        """A gate that steps wait at until the test opens it."""
        return self.gates.setdefault(name, asyncio.Event())

    async def pass_gate(self, name: str) -> None:
        """Wait at a gate."""
        await self.gates.setdefault(name, asyncio.Event()).wait()

    def throw(self, node: str) -> int:
        """A number that nobody else gets."""
        self.runs[node] += 1
        return next(self.numbers)

    async def close(self) -> None:
        """The world goes on."""


def digest(value: Any) -> str:
    """A short name for a value, whatever it holds."""
    return hashlib.sha1(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


far: World | None = None
"""The world of a process that is not the test's own."""


def world_of(context: StepContext) -> World:
    """The world that a step changes."""
    world: World = far or context.service("world")
    return world


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
        world = world_of(context)
        world.began(context.node_id, context.step, context.attempt, self.of, self.gate)
        try:
            if self.gate:
                await world.pass_gate(self.gate)
            for _ in range(self.steps):
                await asyncio.sleep(0)
        finally:
            world.ended(context.node_id)
        if context.attempt <= self.fails:
            raise NodeError(f"failed attempt {context.attempt}", "FLAKY")
        return Done({"done": self.of, "attempt": context.attempt})


class Dice(NodeType, kw_only=True):
    """Without effects, and different each time."""

    name: ClassVar = "dice"
    effects: ClassVar = False

    async def run(self, context: StepContext) -> Outcome:
        return Done({"number": world_of(context).throw(context.node_id)})


class Oops(NodeType, kw_only=True):
    """Raise what no node should raise."""

    name: ClassVar = "oops"
    effects: ClassVar = False

    async def run(self, context: StepContext) -> Outcome:
        raise RuntimeError("out of the blue")


class Stream(NodeType, kw_only=True):
    """A split that reads its items portion by portion; with `endless`, the last one again and again."""

    name: ClassVar = "stream"
    role: ClassVar = Role.SPLIT
    pure: ClassVar = True
    effects: ClassVar = False

    of: Any
    """The portions: lists of items."""
    window: int = 0
    endless: bool = False
    tolerated: int | None = None
    fails: int = 0
    """How many attempts of each reading fail."""
    fails_from: int = 0
    """The first portion whose reading fails."""
    gate: str = ""

    async def run(self, context: StepContext) -> Outcome:
        policy = Policy(tolerated=self.tolerated)
        return FanOut(Source(lazy={"of": self.of}), policy, window=self.window)

    async def read(
        self, context: StepContext, source: Mapping[str, Any], position: Any, index: int, wanted: int
    ) -> Portion:
        world = world_of(context)
        number = position or 0
        world.began(context.node_id, context.step, context.attempt, [number, index], self.gate)
        try:
            if self.gate:
                await world.pass_gate(self.gate)
        finally:
            world.ended(context.node_id)
        if number >= self.fails_from and context.attempt <= self.fails:
            raise NodeError(f"failed attempt {context.attempt}", "UNREADABLE", retryable=True)
        portions = source["of"]
        items = portions[min(number, len(portions) - 1)] if portions else []
        ended = number + 1 >= len(portions) and not self.endless
        labels = [f"{number}/{i}" for i in range(len(items))]
        return Portion(items, None if ended else number + 1, labels)


TYPES = [Note, Digest, Boom, Effect, Dice, Oops, Stream]
