"""Steps that take their time: run side by side, each under its lease, and passed on as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from rune.core.ids import derive
from rune.core.messages import Task, encode, scope_of
from rune.core.operations import Arm, Timer
from rune.core.ports import Broker, Delivery, State
from rune.core.step import Step
from rune.engine.carrying import Carrier
from rune.engine.running import Attempt, Runner
from rune.engine.values import Values
from rune.settings import Settings

__all__ = ["Apart"]

_REST = 0.5
"""Seconds that a step may wait for other executions before it gives its delivery back."""


class Apart:
    """Runs the steps of a delivery that may wait for something."""

    def __init__(
        self,
        state: State,
        broker: Broker,
        *,
        values: Values,
        runner: Runner,
        carrier: Carrier,
        settings: Settings,
        clock: Callable[[], float],
        on_rest: Callable[[], None],
    ) -> None:
        self._state = state
        self._broker = broker
        self._values = values
        self._runner = runner
        self._carrier = carrier
        self._settings = settings
        self._clock = clock
        self._on_rest = on_rest

    async def unleased(self, delivery: Delivery, steps: Sequence[Step]) -> None:
        """Run steps that change nothing outside, so that they may run twice."""
        await self._run(delivery, [(step, None) for step in steps], [], hold=None)

    async def leased(self, delivery: Delivery, steps: list[Step]) -> None:
        """Run the steps that nobody else runs or has run."""
        execution = steps[0].task.execution_id
        until = self._clock() + (steps[0].node.job.lease or self._settings.lease)
        asked = [(step.branch.step, scope_of(step.branch.lineage)) for step in steps]
        leases = await self._state.lease(execution, asked, steps[0].task.attempt, until)
        ready: list[tuple[Step, bytes | None]] = []
        dropped: list[Step] = []
        for step, lease in zip(steps, leases, strict=True):
            if lease.record is not None or lease.fence:
                known = msgspec.structs.replace(step, fence=lease.fence, turn=lease.turn)
                ready.append((known, lease.record))
            elif lease.busy_until is not None:
                await self._come_back(step, lease.busy_until)
            else:
                # Whoever closed something gets the old answer, and publishes again.
                dropped.append(step)
        tasks = await self._carrier.drop(dropped) if dropped else []
        await self._run(delivery, ready, tasks, hold=self._settings.hold)

    async def _run(
        self,
        delivery: Delivery,
        ready: list[tuple[Step, bytes | None]],
        tasks: list[Task],
        *,
        hold: float | None,
    ) -> None:
        """Run steps that take their time side by side, and pass each on when it has ended."""
        running: dict[asyncio.Task[Attempt], Step] = {}
        loop = asyncio.get_running_loop()
        resting: asyncio.Future[None] = loop.create_future()
        for step, record in ready:
            work = self._runner.run(step, self._values, self._state, record, partial(_settle, resting))
            running[asyncio.create_task(work)] = step
        held = rested = False
        until = None if hold is None else loop.time() + hold
        try:
            while running:
                events: set[asyncio.Future[Any]] = {*running} if rested else {*running, resting}
                left = None if until is None else max(0.0, until - loop.time())
                ended, _ = await asyncio.wait(events, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                done = [task for task in running if task in ended]
                if resting in ended:
                    rested, until = True, None if held else loop.time() + _REST
                    self._on_rest()
                elif not done:
                    await self._hold(delivery, list(running.values()))
                    held, until = True, None
                if not done:
                    continue
                steps = [running.pop(task) for task in done]
                tasks += await self._carrier.conclude(steps, [task.result() for task in done])
                if running or held:
                    await self._broker.publish(tasks)
                    tasks = []
            if not held:
                await self._broker.finish(delivery, tasks)
        finally:
            if running:
                await asyncio.shield(self._abandon(running))

    async def _abandon(self, running: Mapping[asyncio.Task[Attempt], Step]) -> None:
        """Stop steps that are still running, and give their leases back as if they had not started."""
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        leased = [(step.branch.step, step.fence) for step in running.values() if step.fence]
        if leased:
            await self._state.give_back(next(iter(running.values())).task.execution_id, leased)

    async def _come_back(self, step: Step, at: float) -> None:
        """Somebody runs this step: look again when their lease ends."""
        branch = step.branch
        task = step.again(attempt=step.task.attempt)
        # Named after what it waits for: an older one, for another attempt or lease, must not stand for it.
        id = derive(branch.step, "~busy", str(step.task.attempt), repr(at))
        timer = Timer(id, at, encode(task), sleeping=False)
        await self._state.apply(step.task.execution_id, [step.commit([Arm(timer)])])

    async def _hold(self, delivery: Delivery, steps: list[Step]) -> None:
        """Give a delivery back that takes long: the lease and a timer at its end watch over the step."""
        at = self._clock() + (steps[0].node.job.lease or self._settings.lease)
        for step in steps:
            await self._come_back(step, at)
        await self._broker.finish(delivery)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
