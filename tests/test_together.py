"""What a worker does together: plain steps as they come, and items that reach the same aggregator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.core.errors import InfrastructureError
from rune.core.messages import Task
from rune.core.ports import Delivery
from rune.core.step import Step
from rune.worker import Worker
from tests.core.graphs import graph, step
from tests.desk import Desk

FLOW = graph("item > next")


class Pair(Desk):
    """A worker whose broker finishes several deliveries together."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.finished: list[list[str]] = []
        """The nodes of deliveries that were finished together."""
        self.trouble: list[Exception] = []
        """What finishing raises first."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.worker = Worker(
            self.engine,  # type: ignore[arg-type]
            self.broker,
            self.state,
            self.settings,
            enduring=True,
            finish_all=self.finish_all,
        )
        self.engine.at_once = self.at_once  # type: ignore[attr-defined]
        self.engine.arrive = self.arrive  # type: ignore[attr-defined]

    def at_once(self, delivery: Delivery) -> Task | Step | None:
        match delivery.task.current_node:
            case "bug":
                raise RuntimeError("a bug")
            case "plain":
                return msgspec.structs.replace(delivery.task, current_node="next")
            case "item":
                return msgspec.structs.replace(step(FLOW, "item"), task=delivery.task)
        return None

    async def arrive(self, steps: Sequence[Any]) -> list[Task]:
        return [msgspec.structs.replace(steps[0].task, current_node="next")]

    async def finish_all(self, finished: Sequence[tuple[Delivery, Sequence[Task]]]) -> None:
        await self.gate.wait()
        if self.trouble:
            raise self.trouble.pop()
        self.finished.append([delivery.task.current_node for delivery, _ in finished])
        for delivery, tasks in finished:
            await self.broker.finish(delivery, tasks)


async def test_plain_steps_that_come_together_are_finished_together() -> None:
    desk = Pair()
    await desk.publish("plain", "plain", "plain")
    async with desk.running():
        await desk.entered(*["next"] * 3)
        await desk.settled()
    assert (desk.finished, desk.engine.handled) == ([["plain"] * 3], ["next"] * 3)


async def test_items_of_one_execution_arrive_together() -> None:
    desk = Pair()
    await desk.publish("item", "item", execution="one")
    await desk.publish("item", execution="other")
    async with desk.running():
        await desk.settled()
    assert sorted(desk.finished) == [["item"], ["item", "item"]]
    assert desk.engine.handled == ["next", "next"]


async def test_what_cannot_be_finished_together_goes_the_long_way_one_by_one() -> None:
    desk = Pair()
    desk.trouble = [InfrastructureError("no queue takes it")]
    await desk.publish("plain", "plain")
    async with desk.running():
        await desk.until(lambda: len(desk.engine.handled) == 2)
        await desk.settled()
    assert (desk.finished, desk.engine.handled) == ([], ["plain", "plain"])


async def test_a_bug_met_in_passing_is_met_again_on_the_long_way() -> None:
    desk = Pair()
    await desk.publish("bug", "plain")
    async with desk.running():
        await desk.until(lambda: desk.engine.handled == ["bug", "next"])
        await desk.settled()


async def test_stopping_gives_back_what_is_not_finished() -> None:
    desk = Pair(grace=0)
    desk.gate.clear()
    await desk.publish("plain", "item")
    async with desk.running() as running:
        await desk.until(lambda: desk.worker.in_flight == 2)
        desk.worker.stop()
        await running
    assert desk.queued() == ["item", "plain"]
