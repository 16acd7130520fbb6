"""A rig that drives the engine by hand: the test decides about order, duplicates and time.

`inside.py` has the rig whose engine runs in the test's own process, where it can be crashed between any two
calls; `outside.py` has the one whose engine is three workers and two schedulers, each a process of its own.
"""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, decode_task, encode
from rune.core.ports import Broker, Delivery, State
from rune.engine import Engine
from rune.engine.values import expand
from rune.settings import Settings
from tests.conformance.flows import compiled, edge, flow, node
from tests.conformance.nodes import World

__all__ = ["GENEROUS", "Backend", "Clock", "Rig", "compiled", "edge", "flow", "node"]

GENEROUS = Settings(max_starts=1000)
"""For tests that kill the worker again and again."""

_names = itertools.count(1)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Backend(Protocol):
    """What the rig needs to know about a backend."""

    broker: Broker
    state: State

    def left(self, execution: str) -> dict[str, Any]:
        """All that is kept of an execution besides its tombstone, by kind."""

    def queue(self) -> int:
        """How many Tasks are waiting or unfinished."""


class Rig(ABC):
    """What a test does to an engine, and sees of it."""

    backend: Backend
    engine: Engine

    def __init__(
        self,
        *,
        clock: Clock,
        seed: int = 0,
        duplicates: float = 0.0,
        at_once: int = 1,
        settings: Settings | None = None,
        shuffle: bool = True,
    ) -> None:
        self.clock = clock
        self.settings = settings or Settings()
        self.random = random.Random(seed)
        self.duplicates = duplicates
        self.at_once = at_once
        self.shuffle = shuffle
        self.world = World()
        self.statuses: list[NodeStatusMessage] = []
        self.completions: list[CompletionMessage] = []
        self.tasks: list[Task] = []
        """Every Task that was published, without duplicates made by the rig."""
        self.dead_letters: list[str] = []
        self.inbox: list[Delivery] = []
        self._doubled: set[object] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        """The rig with its engine."""
        await self.open()
        try:
            yield self
        finally:
            await self.close()

    # --- who runs it ---

    @abstractmethod
    async def open(self) -> None:
        """Start the engine, on nothing."""

    @abstractmethod
    async def close(self) -> None:
        """Stop it."""

    @abstractmethod
    async def run(self, *, until: Callable[[], bool] | None = None, timers: bool = True) -> None:
        """Handle everything there is, in random order; when nothing is left, jump to the next timer."""

    @abstractmethod
    async def fill(self) -> None:
        """Wait until all that was published is in the inbox."""

    @abstractmethod
    async def handle(self, *deliveries: Delivery) -> None:
        """Handle deliveries, all at the same time."""

    @abstractmethod
    async def drop(self, delivery: Delivery) -> None:
        """Lose a delivery for good."""

    @abstractmethod
    async def ring(self) -> None:
        """Publish the timers that are due now."""

    @abstractmethod
    def kill(self) -> None:
        """Kill whoever is handling deliveries; another takes over."""

    @abstractmethod
    async def heed(self, execution: str, *, paused: bool) -> None:
        """Wait until whoever handles deliveries knows whether an execution is paused."""

    @abstractmethod
    def count_stored(self) -> Callable[[], int]:
        """Begin to count the bytes of the values that are stored; what is returned says how many."""

    @abstractmethod
    def check(self) -> None:
        """Raise what went wrong where no test could see it."""

    def _double(self, task: Task) -> bool:
        """Whether a Task comes twice; what a duplicate publishes again does not, or they would breed."""
        steps = tuple(twig.step for twig in task.twigs) or (task.step,)
        name = (task.execution_id, steps, task.current_node, task.phase, task.attempt, task.cursor)
        if name in self._doubled:
            return False
        self._doubled.add(name)
        return self.random.random() < self.duplicates

    def _choose(self, most: int) -> list[Delivery]:
        """Some deliveries out of the inbox, at most so many."""
        many = self.random.randint(1, most)
        chosen: list[Delivery] = []
        while self.inbox and len(chosen) < many:
            at = self.random.randrange(len(self.inbox)) if self.shuffle else 0
            chosen.append(self.inbox.pop(at))
        return chosen

    # --- what a test does ---

    def seed(self, seed: int, *, at_once: int = 1, duplicates: float = 0.0) -> None:
        """From now on, let chance rule like this."""
        self.random = random.Random(seed)
        self.at_once, self.duplicates = at_once, duplicates

    def name(self) -> str:
        """A name for an execution that no other has."""
        return f"exec-{next(_names)}"

    async def start(
        self, definition: Mapping[str, Any], input: Any = None, *, execution: str = "", **context: Any
    ) -> str:
        """Start an execution; its name."""
        execution = execution or self.name()
        values = {"$trigger": input if input is not None else {}, **context}
        raw = {key: Raw(msgspec.json.encode(value)) for key, value in values.items()}
        await self.engine.start(compiled(definition), execution, raw)
        return execution

    async def start_at(self, definition: Mapping[str, Any], node: str, input: Any) -> str:
        """Start an execution at one node, by a message with exactly the fields of RFC 001 §6.1."""
        execution = self.name()
        message = {"workflow_id": "wf", "execution_id": execution, "current_node": node}
        context = {"$trigger": input}
        await self.publish({**message, "workflow_definition": definition, "accumulated_context": context})
        return execution

    async def publish(self, message: Mapping[str, Any] | Task) -> None:
        """Put a message into the queue, as somebody from outside would."""
        task = message if isinstance(message, Task) else decode_task(msgspec.json.encode(message))
        await self.backend.broker.publish([task])

    def pick(self, node: str, **fields: Any) -> Delivery:
        """Take a delivery for this node out of the inbox."""
        for i, delivery in enumerate(self.inbox):
            task = delivery.task
            if task.current_node == node and all(getattr(task, k) == v for k, v in fields.items()):
                return self.inbox.pop(i)
        raise AssertionError(f"nothing for {node!r} in {[d.task.current_node for d in self.inbox]}")

    async def handle_node(self, node: str, **fields: Any) -> None:
        """Handle the next delivery for this node, and nothing else."""
        await self.fill()
        await self.handle(self.pick(node, **fields))

    async def tick(self) -> bool:
        """Jump to the next timer and publish what is due; False if there is none."""
        due = await self.backend.state.next_due()
        if due is None:
            return False
        self.clock.now = max(self.clock.now, due)
        await self.ring()
        return True

    async def pause(self, execution: str) -> None:
        """Pause an execution."""
        assert await self.backend.state.pause(execution)
        await self.heed(execution, paused=True)

    async def resume(self, execution: str) -> None:
        """Let a paused execution go on."""
        parked = await self.backend.state.unpause(execution)
        await self.heed(execution, paused=False)
        for task in parked:
            await self.publish(decode_task(task))
        await self.backend.state.unparked(execution)

    # --- what a test sees ---

    async def completion(self, execution: str) -> CompletionMessage:
        """The one completion of an execution; that it is one is checked."""
        found = [c for c in self.completions if c.execution_id == execution]
        assert found, f"{execution} has not ended: {self.describe(execution)}"
        assert all(c == found[0] for c in found), f"two different completions: {found}"
        return found[0]

    async def context(self, execution: str) -> dict[str, Any]:
        """The final context, with every value in it."""
        completion = await self.completion(execution)
        values = dict(completion.final_context)
        if completion.refs:
            values = (
                expand(completion.refs, await self.engine.values.load(execution, completion.refs)) | values
            )
        return {key: msgspec.json.decode(raw) for key, raw in values.items()}

    async def most_between(self, execution: str, first: str, gather: str) -> int:
        """Run to the end: how many items had begun with one node and not reached the other, at most."""
        most = 0

        def look() -> bool:
            nonlocal most
            told = [s for s in self.statuses if s.execution_id == execution]
            entered = {s.step for s in told if s.node_id == first and s.status == "running"}
            left = {s.lineage_stack[-1].item_index for s in told if s.node_id == gather and s.lineage_stack}
            most = max(most, len(entered) - len(left))
            return False

        await self.run(until=look)
        return most

    async def finished(self, execution: str) -> CompletionMessage:
        """The completion, after everything that has to be true after an end was checked."""
        self.check()
        completion = await self.completion(execution)
        # Who dies between burying an execution and taking it off the list leaves it there; who hears of its
        # end before asking for it drops all at once. The next to look at the list puts it right.
        await self.backend.state.live()
        kept = {ref.hash for ref in completion.refs}
        left = self.backend.left(execution)
        values = set(left.pop("values", ()))
        assert values <= kept, f"values nobody names are kept: {values - kept}"
        assert not any(left.values()), f"left behind: {left}"
        assert self.backend.queue() == 0
        assert not self.dead_letters, self.dead_letters
        return completion

    async def result(
        self, definition: Mapping[str, Any], input: Any = None, **context: Any
    ) -> tuple[str, dict[str, Any]]:
        """Run a workflow to its end: its status and final context."""
        execution = await self.start(definition, input, **context)
        await self.run()
        completion = await self.finished(execution)
        return completion.status, await self.context(execution)

    def describe(self, execution: str) -> str:
        """What an execution hangs on."""
        last = [(s.node_id, s.status) for s in self.statuses[-5:]]
        return f"left {self.backend.left(execution)}, dead letters {self.dead_letters}, last statuses {last}"

    def told(self, node: str, *, execution: str = "") -> list[str]:
        """The statuses that were told of a node, in order."""
        return [s.status for s in self.statuses if s.node_id == node and execution in ("", s.execution_id)]

    def largest(self) -> int:
        """Bytes of the largest Task that was published."""
        return max(len(encode(task)) for task in self.tasks)

    def bytes_published(self) -> int:
        """Bytes of all Tasks that were published."""
        return sum(len(encode(task)) for task in self.tasks)
