"""Executions that fail, are mended and redriven: an engine driven by hand, and a history of what it told."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.ports import Delivery
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.formats.definition import compile_definition
from rune.history import History, open_history
from rune.history.executions import Execution, NewExecution
from rune.master.redrive import Prepared, Redriving
from rune.master.standing import Wish
from rune.master.steering import Steering
from rune.nodes import FAMILIES, SERVICES, load_builtin
from rune.scheduler import Scheduler
from tests.conformance.backends import Memory
from tests.conformance.faults import Crash, FaultyBroker, FaultyState
from tests.conformance.harness import GENEROUS
from tests.conformance.inside import Inside, _Worker
from tests.conformance.nodes import TYPES, Boom, Digest, Effect, Note, World

__all__ = ["Fragile", "Mending", "mending"]


class Fragile(Boom, kw_only=True):
    """Changes the world; fails when told to, until it is mended if it can be."""

    pure: ClassVar = False
    effects: ClassVar = True

    mends: bool = False

    async def run(self, context: StepContext) -> Outcome:
        world: Workshop = context.service("world")
        if self.when and (world.broken or not self.mends):
            raise NodeError(self.message, "BOOM")
        world.done[context.node_id, context.step] += 1
        world.keys[context.node_id].append(context.key)
        return Done({"calm": True})


class Flaky(Effect, kw_only=True):
    """Fails the first attempts, until it is mended if it can be."""

    mends: bool = False

    async def run(self, context: StepContext) -> Outcome:
        world: Workshop = context.service("world")
        if context.attempt <= self.fails and (world.broken or not self.mends):
            raise NodeError(f"failed attempt {context.attempt}", "FLAKY")
        world.done[context.node_id, context.step] += 1
        return Done({"done": self.of, "attempt": context.attempt})


class Noted(Note, kw_only=True):
    """Passes on what it sees, and changes the world."""

    pure: ClassVar = False
    effects: ClassVar = True

    async def run(self, context: StepContext) -> Outcome:
        context.service("world").done[context.node_id, context.step] += 1
        return await super().run(context)


class Digested(Digest, kw_only=True):
    """A short name of all that it sees, and changes the world."""

    pure: ClassVar = False
    effects: ClassVar = True

    async def run(self, context: StepContext) -> Outcome:
        context.service("world").done[context.node_id, context.step] += 1
        return await super().run(context)


class Setter(NodeType, kw_only=True):
    """Sets variables of the execution, and shows those that it found; may fail as `boom` does."""

    name: ClassVar = "setter"

    sets: dict[str, Any] | None = None
    when: bool = False
    mends: bool = False

    async def run(self, context: StepContext) -> Outcome:
        world: Workshop = context.service("world")
        found = await context.variables()
        if self.when and (world.broken or not self.mends):
            raise NodeError("not yet", "BOOM")
        world.done[context.node_id, context.step] += 1
        return Done({"found": found}, sets=self.sets)


class Workshop(World):
    """A world in which things can be mended."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = True
        self.done: Counter[tuple[str, str]] = Counter()
        """How often each node's effect succeeded in each step."""


OURS = {"boom": Fragile, "effect": Flaky, "note": Noted, "digest": Digested, "setter": Setter}
PLAYBOOKS = [type for folder in FAMILIES.values() for type in load_builtin(folder)]
REGISTRY = Registry([*load_builtin(), *PLAYBOOKS, *(t for t in TYPES if t.name not in OURS), *OURS.values()])


def compiled(definition: Mapping[str, Any]) -> Workflow:
    """The workflow of a definition."""
    return compile_definition(msgspec.json.encode(definition), REGISTRY)


class _Attended(FaultyState):
    """Forgets nothing that a recorder that keeps up would have read by then."""

    async def bury(self, execution: str, *arguments: Any) -> None:
        rig = self._rig
        assert isinstance(rig, Mending)
        await rig.fetch()
        found = await rig.backend.state.variables(execution)
        if found:
            rig.variables[execution] = {name: msgspec.json.decode(data) for name, data in found.items()}
        await self.__getattr__("bury")(execution, *arguments)


class Mending(Inside):
    """An engine over memory, and the history of all it tells."""

    world: Workshop

    def __init__(self, history: History, **manner: Any) -> None:
        super().__init__(Memory(), settings=GENEROUS, **manner)
        self.world = Workshop()
        self.history = history
        self.ahead = ""
        """A node whose steps, and those that they lead to, go before all others."""
        self.variables: dict[str, dict[str, Any]] = {}
        """Those of executions, when they had ended."""
        self._recorded = self._fetched = 0
        self._values: dict[tuple[str, str], bytes] = {}

    def _build(self) -> None:
        self.state = _Attended(self)  # type: ignore[assignment]
        self.broker = FaultyBroker(self)  # type: ignore[assignment]
        services = {**SERVICES, "world": lambda: self.world}
        self._runner = Runner(self.settings, self.clock, services, Credentials(None))
        self.engine = Engine(self.state, self.broker, _compile_bytes, self._runner, self.settings, self.clock)
        self.worker = _Worker(self)
        self.scheduler = Scheduler(self.state, self.broker, self.clock)
        self.runtime = Steering(self.engine, self.state, self.broker)
        self.redriving = Redriving(self.history, self.runtime)  # type: ignore[arg-type]

    def _choose(self, most: int) -> list[Delivery]:
        for at, delivery in enumerate(self.inbox):
            if self.ahead and self.ahead in (delivery.task.current_node, delivery.task.from_node):
                return [self.inbox.pop(at)]
        return super()._choose(most)

    async def first(self, definition: Mapping[str, Any], input: Any = None) -> Execution:
        """Run a workflow for the first time."""
        flow = compiled(definition)
        given = Raw(msgspec.json.encode(input if input is not None else {}))
        new = NewExecution(id=self.name(), definition=flow.definition.decode(), input=given)
        await self.history.executions.create(new)
        await self._begin(lambda: self.runtime.start(flow, new.id, {"$trigger": given}))
        return await self.ended(new.id)

    async def again(self, parent: Execution, wish: Wish | None = None, **how: Any) -> Execution:
        """Redrive or fork an execution, and run what comes of it."""
        prepared = await self.prepared(parent, wish, **how)
        await self.launch(prepared)
        return await self.ended(prepared.new.id)

    async def prepared(
        self, parent: Execution, wish: Wish | None = None, *, flow: Workflow | None = None, **how: Any
    ) -> Prepared:
        """What is to be stored and started."""
        if flow is None:
            text = await self.history.executions.definition(parent.id)
            assert text is not None
            flow = compiled(msgspec.json.decode(text))
        return await self.redriving.prepare(parent, wish or Wish(), flow, **how)

    async def launch(self, prepared: Prepared) -> Execution:
        """Store an execution and start it."""
        new = prepared.new
        execution = await self.history.executions.create(new)
        values = {"$trigger": new.input or Raw(b"{}")}

        def start() -> Awaitable[None]:
            seeds = self.redriving.seeds_of(execution, prepared.flow)
            return self.runtime.start(prepared.flow, new.id, values, root=new.root, seeds=seeds)

        await self._begin(start)
        return execution

    async def _begin(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start an execution, as often as it takes."""
        while True:
            try:
                return await start()
            except Crash:
                await self.restart()

    async def ended(self, execution: str) -> Execution:
        """Run it to its end, and see that the history knows."""
        await self.run()
        await self.record()
        found = await self.history.executions.get(execution)
        assert found is not None
        assert found.ended_at is not None, self.describe(execution)
        return found

    async def record(self) -> None:
        """Store what was told since the last time."""
        await self.fetch()
        statuses = self.statuses[self._recorded :]
        self._recorded = len(self.statuses)
        values, self._values = self._values, {}
        await self.history.recording.record(statuses, self.completions, values)

    async def fetch(self) -> None:
        """Read what was only referred to since the last time."""
        statuses = self.statuses[self._fetched :]
        self._fetched = len(self.statuses)
        for status in statuses:
            for ref in (status.output_ref, status.sets.ref if status.sets else None):
                if ref is not None:
                    found = await self.backend.state.get(status.execution_id, [ref.hash])
                    self._values |= {(status.execution_id, hash): data for hash, data in found.items()}


def _compile_bytes(definition: bytes) -> Workflow:
    return compile_definition(definition, REGISTRY)


@asynccontextmanager
async def mending(directory: Path, **manner: Any) -> AsyncIterator[Mending]:
    """A rig with a history of its own."""
    async with open_history(str(directory / "history.db")) as history:
        rig = Mending(history, **manner)
        async with rig.running():
            yield rig
