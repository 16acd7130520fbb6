"""An engine on a bench: a clock that is set by hand, a broker that only writes down, State in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from rune.backends.memory import MemoryState
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task
from rune.core.ports import Delivery
from rune.core.workflow import Workflow
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.engine.values import expand
from rune.scheduler import Scheduler
from rune.settings import Settings
from tests.core.graphs import NOW, graph, plain, raws

__all__ = ["Bench", "Clock", "Outbox", "Spy"]

EXECUTION = "exec"


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Spy:
    """Passes calls on, and writes down which; `before` may be a coroutine function to wait for first."""

    def __init__(self, of: Any) -> None:
        self._of = of
        self.calls: list[str] = []
        self.before: Callable[[str], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found) or name == "rows":
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if self.before is not None:
                await self.before(name)
            return await found(*arguments, **named)

        return call


class Outbox:
    """A Broker that delivers nothing by itself."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        """Published and not yet taken."""
        self.completions_: list[CompletionMessage] = []
        self.statuses: list[NodeStatusMessage] = []
        self.finished: list[Delivery] = []
        self.dead: list[tuple[Delivery, str]] = []
        self.retried: list[tuple[Delivery, float]] = []
        self.given_back: list[Delivery] = []
        self.listened = True

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        self.tasks += tasks
        self.completions_ += completions

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        self.tasks += tasks
        self.finished.append(delivery)

    async def retry(self, delivery: Delivery, delay: float) -> None:
        self.retried.append((delivery, delay))

    async def give_back(self, delivery: Delivery) -> None:
        self.given_back.append(delivery)

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        self.dead.append((delivery, reason))

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        self.statuses += statuses

    def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        raise NotImplementedError

    def completions(self) -> AsyncIterator[CompletionMessage]:
        raise NotImplementedError

    async def completed(self, completion: CompletionMessage) -> None:
        raise NotImplementedError


class Bench:
    """One engine, its parts at hand."""

    def __init__(
        self,
        *ways: str,
        nodes: tuple[Any, ...] = (),
        settings: Settings | None = None,
        credentials: Mapping[str, Any] | None = None,
        services: Mapping[str, Callable[[], Any]] | None = None,
    ) -> None:
        self.flow: Workflow = graph(*ways, nodes=nodes)
        self.settings = settings or Settings()
        self.clock = Clock()
        self.state = Spy(MemoryState(self.clock))
        self.broker = Outbox()
        secrets = Credentials(msgspec.json.encode(credentials).decode() if credentials else None)
        self.runner = Runner(self.settings, self.clock, services or {}, secrets)
        self.engine = Engine(
            self.state,
            self.broker,
            lambda definition: self.flow,
            self.runner,
            self.settings,
            self.clock,
        )
        self.scheduler = Scheduler(self.state, self.broker, self.clock)
        self._tags = 0

    async def start(self, input: Any = None) -> None:
        """Start the execution."""
        await self.engine.start(self.flow, EXECUTION, raws({"$trigger": input}))

    def take(self, node: str | None = None, *, redelivered: bool = False) -> Delivery:
        """The next delivery, or the next one for a node."""
        at = next(i for i, task in enumerate(self.broker.tasks) if node in (None, task.current_node))
        self._tags += 1
        return Delivery(self._tags, self.broker.tasks.pop(at), redelivered)

    async def handle(self, node: str | None = None) -> None:
        """Handle the next delivery, or the next one for a node."""
        await self.engine.handle(self.take(node))

    async def tick(self) -> bool:
        """Jump to the next timer and publish what is due."""
        due = await self.state.next_due()
        if due is None:
            return False
        self.clock.now = max(self.clock.now, due)
        await self.scheduler.tick()
        return True

    async def run(self) -> CompletionMessage:
        """Handle everything, timers too, until nothing is left; the one completion."""
        while self.broker.tasks or await self.tick():
            if self.broker.tasks:
                await self.handle()
        (completion,) = self.broker.completions_
        return completion

    async def final(self, completion: CompletionMessage) -> dict[str, Any]:
        """Every value of the final context."""
        layers = await self.engine.values.load(EXECUTION, completion.refs)
        found: dict[str, Any] = plain(expand(completion.refs, layers) | completion.final_context)
        return found

    async def run_through(self, input: Any = None) -> dict[str, Any]:
        """Start, run to the end; the final context."""
        await self.start(input)
        return await self.run_through_rest()

    async def run_through_rest(self) -> dict[str, Any]:
        """Run what is there to the end; the final context."""
        return await self.final(await self.run())

    def told(self, node: str) -> list[str]:
        """The statuses of a node."""
        return [status.status for status in self.broker.statuses if status.node_id == node]
