"""A rig that drives the engine by hand: the test decides about order, duplicates, time and crashes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task, encode
from rune.core.ports import Broker, Delivery, State
from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.engine.values import expand
from rune.formats.graph import compile_workflow
from rune.nodes import SERVICES, load_builtin
from rune.scheduler import Scheduler
from rune.settings import Settings
from rune.worker import Worker
from tests.conformance.nodes import TYPES, World

__all__ = ["Backend", "Clock", "Crash", "Faults", "Rig", "compiled", "edge", "flow", "node"]

REGISTRY = Registry([*load_builtin(), *TYPES])
GENEROUS = Settings(max_starts=1000)
"""For tests that kill the worker again and again."""


# --- workflows ---


def node(id: str, type: str = "note", /, **rest: Any) -> dict[str, Any]:
    """A node of a definition; what is not a field of the node is a parameter."""
    fields = {"name", "error", "retry", "trigger", "credentials", "x"}
    made = {"id": id, "type": type, "parameters": {k: v for k, v in rest.items() if k not in fields}}
    return made | {k: v for k, v in rest.items() if k in fields}


def edge(src: str, dst: str, port: str = "out", id: str = "") -> dict[str, Any]:
    """An edge of a definition."""
    named = id or f"{src}-{dst}" + ("" if port == "out" else f"-{port}")
    return {"id": named, "src": src, "dst": dst, "port": port}


def flow(nodes: Sequence[dict[str, Any]], *ways: str | dict[str, Any]) -> dict[str, Any]:
    """A definition; a way is an edge, or a chain such as `a > b > c` or `a:true > b`."""
    edges: list[dict[str, Any]] = []
    for way in ways:
        if isinstance(way, dict):
            edges.append(way)
            continue
        stops = [stop.strip() for stop in way.split(">")]
        for src, dst in itertools.pairwise(stops):
            name, _, port = src.partition(":")
            edges.append(edge(name, dst.partition(":")[0], port or "out"))
    return {"workflow_id": "wf", "nodes": list(nodes), "edges": edges}


def compiled(definition: Mapping[str, Any]) -> Workflow:
    """The workflow that a definition means."""
    return compile_workflow(definition, REGISTRY)


# --- faults ---


class Crash(BaseException):
    """The process is gone: nothing that stands in the engine may catch it."""


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Faults:
    """Counts the calls of ports, and ends the process before or after chosen ones."""

    def __init__(self) -> None:
        self.calls = 0
        self.names: list[str] = []
        self.before: set[int] = set()
        self.after: set[int] = set()
        self.dead = False

    def enter(self, name: str) -> int:
        """A call begins; its number."""
        if self.dead:
            raise Crash
        self.calls += 1
        self.names.append(name)
        if self.calls in self.before:
            self.kill()
        return self.calls

    def leave(self, number: int) -> None:
        """The call has done what it does."""
        if self.dead:
            raise Crash
        if number in self.after:
            self.kill()

    def kill(self) -> None:
        """The process dies here."""
        self.dead = True
        raise Crash


class _FaultyState:
    """A State whose every call may be the last."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    @property
    def epoch(self) -> str:
        return self._rig.backend.state.epoch

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            faults = self._rig.faults
            await self._rig.yield_to_others()
            number = faults.enter(name)
            result = await getattr(self._rig.backend.state, name)(*arguments, **named)
            faults.leave(number)
            await self._rig.yield_to_others()
            return result

        return call


class _FaultyBroker:
    """A Broker that duplicates what it is told to publish, and whose every call may be the last."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    @property
    def listened(self) -> bool:
        return True

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        self._rig.statuses += statuses

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        rig = self._rig
        number = rig.faults.enter("publish")
        sent = rig.sent(tasks)
        await rig.backend.broker.publish(sent, completions)
        rig.published += len(sent)
        rig.completions += completions
        rig.faults.leave(number)
        await rig.yield_to_others()

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        rig = self._rig
        sent = rig.sent(tasks)
        number = rig.faults.enter("finish")
        if sent and (number in rig.faults.after):
            # The worst moment: published, and not acknowledged.
            await rig.backend.broker.publish(sent)
            rig.published += len(sent)
            rig.faults.kill()
        await rig.backend.broker.finish(delivery, sent)
        rig.published += len(sent)
        rig.unfinished.pop(delivery.tag, None)
        rig.faults.leave(number)
        rig.faults.leave(rig.faults.enter("finished"))

    async def retry(self, delivery: Delivery, delay: float) -> None:
        await self._ended("retry", delivery, delay)
        self._rig.published += 1

    async def give_back(self, delivery: Delivery) -> None:
        await self._ended("give_back", delivery)
        self._rig.published += 1

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        await self._ended("dead_letter", delivery, reason)
        self._rig.dead_letters.append(reason)

    async def _ended(self, name: str, delivery: Delivery, *rest: Any) -> None:
        number = self._rig.faults.enter(name)
        await getattr(self._rig.backend.broker, name)(delivery, *rest)
        self._rig.unfinished.pop(delivery.tag, None)
        self._rig.faults.leave(number)


# --- backends ---


class Backend(Protocol):
    """What the rig needs to know about a backend."""

    broker: Broker
    state: State

    async def open(self, clock: Clock) -> None:
        """Open it, empty."""

    async def reopen(self, clock: Clock) -> bool:
        """The process died and came back: whether the broker now delivers again what was unfinished."""

    async def close(self) -> None:
        """Close it."""

    def left(self, execution: str) -> dict[str, Any]:
        """All that is kept of an execution besides its tombstone, by kind."""

    def queue(self) -> int:
        """How many Tasks are waiting or unfinished."""


class _Worker(Worker):
    """A worker that keeps what went wrong for the test to see."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.engine, rig.broker, rig.state, rig.settings)
        self._rig = rig

    async def _try_later(self, delivery: Delivery, error: Exception) -> None:
        self._rig.unexpected.append(error)
        await super()._try_later(delivery, error)


# --- the rig ---


class Rig:
    """One engine at a time over one backend, until it crashes; then the next one."""

    def __init__(
        self,
        backend: Backend,
        *,
        seed: int = 0,
        duplicates: float = 0.0,
        at_once: int = 1,
        settings: Settings | None = None,
        shuffle: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.backend = backend
        self.clock = clock or Clock()
        self.world = World()
        self.faults = Faults()
        self.settings = settings or Settings()
        self.random = random.Random(seed)
        self.duplicates = duplicates
        self.at_once = at_once
        self.shuffle = shuffle
        self.statuses: list[NodeStatusMessage] = []
        self.completions: list[CompletionMessage] = []
        self.tasks: list[Task] = []
        """Every Task that was published, without duplicates made by the rig."""
        self.dead_letters: list[str] = []
        self.unexpected: list[Exception] = []
        self.forgiving = False
        """Go on after an unexpected error."""
        self.inbox: list[Delivery] = []
        self.unfinished: dict[int, Delivery] = {}
        self.published = 0
        self.taken = 0
        self.crashes = 0
        self._doubled: set[object] = set()
        self._arrived = asyncio.Event()
        self._started = itertools.count(1)
        self._pump: asyncio.Task[None] | None = None
        self._working: list[asyncio.Future[None]] = []
        self._ticking: asyncio.Future[int] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        """The rig with its backend open."""
        await self.backend.open(self.clock)
        self._build()
        self._pump = asyncio.create_task(self._take())
        try:
            yield self
        finally:
            await self._stop_pump()
            await self._runner.close()
            await self.backend.close()

    def _build(self) -> None:
        self.state: State = _FaultyState(self)  # type: ignore[assignment]
        self.broker: Broker = _FaultyBroker(self)  # type: ignore[assignment]
        services = {**SERVICES, "world": lambda: self.world}
        self._runner = Runner(self.settings, self.clock, services, Credentials(self.settings.credentials))
        self.engine = Engine(self.state, self.broker, _compile, self._runner, self.settings, self.clock)
        self.worker = _Worker(self)
        self.scheduler = Scheduler(self.state, self.broker, self.clock)

    async def _stop_pump(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
            self._pump = None

    async def _take(self) -> None:
        async for delivery in self.backend.broker.deliveries(1_000_000):
            self.inbox.append(delivery)
            self.unfinished[delivery.tag] = delivery
            self.taken += 1
            self._arrived.set()

    async def yield_to_others(self) -> None:
        """Let concurrent deliveries overtake each other at ports."""
        if self.at_once > 1:
            often = 40 if self.random.random() < 0.05 else 3
            for _ in range(self.random.randrange(often)):
                await asyncio.sleep(0)

    def sent(self, tasks: Sequence[Task]) -> list[Task]:
        """What becomes of Tasks on their way: some come twice."""
        self.tasks += tasks
        doubled = [task for task in tasks if self._double(task)]
        return [*tasks, *doubled]

    def _double(self, task: Task) -> bool:
        """Whether a Task comes twice; what a duplicate publishes again does not, or they would breed."""
        steps = tuple(twig.step for twig in task.twigs) or (task.step,)
        name = (steps, task.current_node, task.phase, task.attempt, task.cursor)
        if name in self._doubled:
            return False
        self._doubled.add(name)
        return self.random.random() < self.duplicates

    def seed(self, seed: int, *, at_once: int = 1, duplicates: float = 0.0) -> None:
        """From now on, let chance rule like this."""
        self.random = random.Random(seed)
        self.at_once, self.duplicates = at_once, duplicates

    # --- what a test does ---

    async def start(self, definition: Mapping[str, Any], input: Any = None, **context: Any) -> str:
        """Start an execution, as often as it takes."""
        execution = f"exec-{next(self._started)}"
        made = compiled(definition)
        values = {"$trigger": input if input is not None else {}, **context}
        raw = {key: Raw(msgspec.json.encode(value)) for key, value in values.items()}
        while True:
            try:
                await self.engine.start(made, execution, raw)
                return execution
            except Crash:
                await self.restart()

    async def start_at(self, definition: Mapping[str, Any], node: str, input: Any) -> str:
        """Start an execution at one node, by a message with exactly the fields of RFC 001 §6.1."""
        execution = f"exec-{next(self._started)}"
        message = {"workflow_id": "wf", "execution_id": execution, "current_node": node}
        context = {"$trigger": input}
        await self.publish({**message, "workflow_definition": definition, "accumulated_context": context})
        return execution

    async def publish(self, message: Mapping[str, Any] | Task) -> None:
        """Put a message into the queue, as somebody from outside would."""
        task = message if isinstance(message, Task) else msgspec.convert(_raw(message), Task)
        await self.backend.broker.publish([task])
        self.published += 1

    async def run(self, *, until: Callable[[], bool] | None = None, timers: bool = True) -> None:
        """Handle everything there is, in random order; when nothing is left, jump to the next timer."""
        while until is None or not until():
            if self.unexpected and not self.forgiving:
                raise self.unexpected[0]
            await self.fill()
            if self.inbox:
                await self.handle(*self._choose())
            elif not timers or not await self.tick():
                return

    async def fill(self) -> None:
        """Wait until all that was published is in the inbox."""
        while self.taken < self.published:
            self._arrived.clear()
            await asyncio.wait_for(self._arrived.wait(), 20)

    def _choose(self) -> list[Delivery]:
        many = self.random.randint(1, self.at_once)
        chosen = []
        while self.inbox and len(chosen) < many:
            at = self.random.randrange(len(self.inbox)) if self.shuffle else 0
            chosen.append(self.inbox.pop(at))
        return chosen

    async def handle(self, *deliveries: Delivery) -> None:
        """Handle deliveries, all at the same time; a crash ends them all."""
        self._working = [asyncio.ensure_future(self.worker._handle(delivery)) for delivery in deliveries]
        await asyncio.wait(self._working, return_when=asyncio.FIRST_EXCEPTION)
        if self.faults.dead:
            self.kill()
            await asyncio.gather(*self._working, return_exceptions=True)
            await self.restart()
        else:
            await asyncio.gather(*self._working)

    def kill(self) -> None:
        """Kill the process now; `handle` starts the next one."""
        self.faults.dead = True
        for work in self._working:
            work.cancel()

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
        ticking = self._ticking = asyncio.ensure_future(self.scheduler.tick())
        while not ticking.done():
            # What it publishes may be handled before it has forgotten the timers.
            if self.inbox and self.at_once > 1:
                await self.handle(*self._choose())
            else:
                await asyncio.sleep(0)
        self._ticking = None
        if self.faults.dead:
            await self.restart()
        elif not ticking.cancelled() and not isinstance(ticking.exception(), Crash):
            ticking.result()
        return True

    async def restart(self) -> None:
        """A new process finds what the old one left."""
        self.crashes += 1
        await self._stop_pump()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
        self.faults.dead = False
        if await self.backend.reopen(self.clock):
            self.published, self.taken = self.backend.queue(), 0
            self.inbox, self.unfinished = [], {}
        else:
            lost = [msgspec.structs.replace(d, redelivered=True) for d in self.unfinished.values()]
            self.inbox = lost
            self.unfinished = {d.tag: d for d in lost}
        self._build()
        self._pump = asyncio.create_task(self._take())

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

    async def finished(self, execution: str) -> CompletionMessage:
        """The completion, after everything that has to be true after an end was checked."""
        if self.unexpected:
            raise self.unexpected[0]
        completion = await self.completion(execution)
        kept = {ref.hash for ref in completion.refs}
        left = self.backend.left(execution)
        values = set(left.pop("values", ()))
        assert values <= kept, f"values nobody names are kept: {values - kept}"
        assert not any(left.values()), f"left behind: {left}"
        assert self.backend.queue() == 0
        assert not self.dead_letters
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


def _compile(definition: bytes) -> Workflow:
    return compile_workflow(msgspec.json.decode(definition), REGISTRY, definition=definition)


def _raw(message: Mapping[str, Any]) -> dict[str, Any]:
    decoded: Task = msgspec.json.decode(msgspec.json.encode(message), type=Task)
    return msgspec.structs.asdict(decoded)
