"""The rig whose engine is three workers and two schedulers, each a process of its own.

All Tasks that they publish come to the rig, which passes them on to the workers: when, how often and in which
order, it decides. What it hears of statuses and completions, it hears over AMQP, as a master would.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

from rune.backends.rabbitmq import RabbitBroker, open_rabbitmq
from rune.backends.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, STATUS, TIMEOUT
from rune.backends.redis import RedisState, open_redis
from rune.backends.redis.keys import CHANNEL, CLAIMED, DUE
from rune.core.ports import Delivery
from rune.credentials import Credentials
from rune.engine import Engine
from rune.engine.running import Runner
from rune.nodes import SERVICES
from rune.settings import Settings
from tests.conformance.crew import POOL, QUEUE, Crew, crew_of, dismiss
from tests.conformance.far import Journal
from tests.conformance.flows import compile_bytes
from tests.conformance.harness import Rig
from tests.servers.redis import Line

__all__ = ["Outside"]

_PATIENCE = 30.0
"""Seconds without any progress after which a test has failed."""


class _Servers:
    """RabbitMQ and Redis as the rig sees them."""

    def __init__(self, crew: Crew, broker: RabbitBroker, state: RedisState) -> None:
        self.broker = broker
        self.state = state
        self._crew = crew

    def left(self, execution: str) -> dict[str, Any]:
        return self._crew.redis.left(execution)

    def queue(self) -> int:
        return sum(map(sum, self._crew.counts(QUEUE, EXECUTION, TIMEOUT)))


class Outside(Rig):
    """Stands between those who publish Tasks and those who take them."""

    backend: _Servers
    world: Journal

    def __init__(self, *, settings: Settings | None = None, duplicates: float = 0.3, **manner: Any) -> None:
        self._crew = crew_of(settings or Settings())
        super().__init__(clock=self._crew.clock, settings=settings, duplicates=duplicates, **manner)
        self._doomed: set[int] = set()
        self._stack = AsyncExitStack()
        self._passed_on = 0
        self._held: set[int] = set()
        """Deliveries that are here and nowhere else."""
        self._killed = False
        self._pumps: list[asyncio.Task[None]] = []
        self._arrived = asyncio.Event()

    # --- opening and closing ---

    async def open(self) -> None:
        crew, enter = self._crew, self._stack.enter_async_context
        crew.purge()
        self._said = len(crew.logs())
        self._line = Line(crew.redis.port)
        self.world = Journal(self._line)
        url = crew.fleet.broker_url
        self._passing = await enter(open_rabbitmq(url, pools=[POOL], route=lambda task: QUEUE))
        broker = await enter(open_rabbitmq(url))
        state = await enter(open_redis(crew.fleet.state_url, clock=self.clock))
        self.backend = _Servers(crew, broker, state)
        runner = Runner(self.settings, self.clock, SERVICES, Credentials(None))
        self.engine = Engine(state, broker, compile_bytes, runner, self.settings, self.clock)
        self._stack.push_async_callback(runner.close)
        for hears in (self._hear_tasks(), self._hear_statuses(), self._hear_completions()):
            self._pumps.append(asyncio.create_task(hears))

    async def close(self) -> None:
        try:
            await self._leave_clean()
        finally:
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)
            await self._stack.aclose()
            self._line.close()

    async def _leave_clean(self) -> None:
        """End what the test has left, or else the crew, so that the next test meets nothing of this one."""
        try:
            async with asyncio.timeout(10):
                self.duplicates = 0.0
                for execution in await self.backend.state.live():
                    message = {"workflow_id": "-", "execution_id": execution, "current_node": ""}
                    await self.publish({**message, "accumulated_context": {}, "phase": "cancel"})
                await self.run(timers=False)
                assert await self.backend.state.next_due() is None
        except (AssertionError, TimeoutError):
            dismiss()

    # --- hearing ---

    async def _hear_tasks(self) -> None:
        async for delivery in self._passing.deliveries(1_000_000):
            self._held.add(delivery.tag)
            self.tasks.append(delivery.task)
            self.inbox.append(delivery)
            if self._double(delivery.task):
                self.inbox.append(Delivery(0, delivery.task))
            self._arrived.set()

    async def _hear_statuses(self) -> None:
        async for statuses in self.backend.broker.statuses():
            self.statuses += statuses

    async def _hear_completions(self) -> None:
        async for completion in self.backend.broker.completions():
            self.completions.append(completion)
            await self.backend.broker.completed(completion)

    # --- passing on ---

    async def run(self, *, until: Callable[[], bool] | None = None, timers: bool = True) -> None:
        """Pass on everything that comes; when nobody has anything to do, jump to the next timer."""
        async for _ in self._patiently():
            if until is not None and until():
                return
            if self.inbox:
                await self._pass_on(self._choose(len(self.inbox)))
            elif await self._quiet(0) and not self.inbox and not (timers and await self.tick()):
                return

    async def fill(self) -> None:
        await self._settle(sum(self.world.waiting.values()))

    async def handle(self, *deliveries: Delivery) -> None:
        self.world.read()
        waiting = sum(self.world.waiting.values())
        await self._pass_on(deliveries)
        await self._settle(waiting)

    async def drop(self, delivery: Delivery) -> None:
        self._held.discard(delivery.tag)
        await self._passing.finish(delivery)

    async def _pass_on(self, deliveries: list[Delivery] | tuple[Delivery, ...]) -> None:
        for delivery in deliveries:
            self._held.discard(delivery.tag)
            self._passed_on += 1
            if self._passed_on in self._doomed:
                self._doomed.discard(self._passed_on)
                self.kill()
        await asyncio.gather(*(self._passing.finish(delivery, [delivery.task]) for delivery in deliveries))

    async def ring(self) -> None:
        """Wake the schedulers: they sleep by the clock on the wall."""
        self._line.call("PUBLISH", CHANNEL, "-inf")

    def kill(self) -> None:
        """Kill the workers in which a step waits at a gate; if there is none, any one."""
        waiting = [worker for worker in self._crew.workers if self.world.waiting[worker.child.pid]]
        for worker in waiting or [self.random.choice(self._crew.workers)]:
            self.world.waiting.pop(worker.child.pid, None)
            self._crew.kill(worker)
        self._killed = True

    def doom(self, *after: int) -> None:
        """Kill a worker after each of so many further Tasks."""
        self._doomed = {self._passed_on + many for many in after}

    async def heed(self, execution: str, *, paused: bool) -> None:
        """Each worker has to look twice: when we ask, it may be looking at what was before."""
        aims = {w.child.pid: self.world.news(w.child.pid) + 2 for w in self._crew.workers}
        async for _ in self._patiently():
            if all(self.world.news(pid) >= aim for pid, aim in aims.items()):
                return

    # --- quiet ---

    async def _settle(self, running: int) -> None:
        async for _ in self._patiently():
            if await self._quiet(running):
                return

    async def _quiet(self, running: int) -> bool:
        """Whether nobody has anything to do, but for so many deliveries; the order of these looks matters.

        Only the rig gives workers anything to do, only workers give schedulers, and both give the rig.
        """
        self.world.read()
        if self._passed_on - self.world.handled > running and not self._killed:
            return False
        ((ready, taken),) = self._crew.counts(QUEUE)
        if ready or taken > running:
            return False
        now = repr(self.clock.now)
        if self._line.call("ZCOUNT", DUE, "-inf", now) or self._line.call("ZCARD", CLAIMED):
            return False
        ours, late, *told, dead = self._crew.counts(EXECUTION, TIMEOUT, STATUS, COMPLETION, DEAD)
        if ours[0] or late[0] or ours[1] + late[1] != len(self._held) or any(map(sum, told)):
            return False
        if self._killed:
            self._killed, self._passed_on = False, self.world.handled
        letters = await self.backend.broker.dead_letters() if sum(dead) else []
        self.dead_letters = [letter.reason for letter in letters]
        return True

    async def _patiently(self) -> AsyncIterator[None]:
        """Turn after turn, each when something may have come; an error when nothing happens any more."""
        seen, since = self._progress(), time.monotonic()
        while True:
            self._arrived.clear()
            yield
            self.world.read()
            if seen != self._progress():
                seen, since = self._progress(), time.monotonic()
            assert time.monotonic() < since + _PATIENCE, f"nothing happens: {self._state_of_affairs()}"
            if self.inbox:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(0.003):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    def _progress(self) -> tuple[int, ...]:
        return self._passed_on, self.world.handled, len(self.tasks), len(self.statuses), len(self.completions)

    def _state_of_affairs(self) -> str:
        queues = (QUEUE, EXECUTION, TIMEOUT, STATUS, COMPLETION, DEAD)
        counts = dict(zip(queues, self._crew.counts(*queues), strict=True))
        timers = {key: self._line.call("ZRANGE", key, "0", "20", "WITHSCORES") for key in (DUE, CLAIMED)}
        return (
            f"passed on {self._passed_on}, handled {self.world.handled}, here {len(self._held)}, {counts}\n"
            f"at {self.clock.now!r}: {timers}\n" + self._crew.logs()[self._said :][-3000:]
        )

    # --- seeing ---

    def count_stored(self) -> Callable[[], int]:
        def received() -> int:
            said = self._line.call("INFO", "stats").decode()
            (found,) = re.findall(r"total_net_input_bytes:(\d+)", said)
            return int(found)

        before = received()
        return lambda: received() - before

    def check(self) -> None:
        said = self._crew.logs()[self._said :]
        assert "unexpected error" not in said, said
        assert "this is a bug" not in said, said
