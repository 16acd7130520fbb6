"""What is measured of a worker: chains, fan-outs, and the time of a single node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import mean
from typing import Literal

from benchmarks.distributed.bare import overhearing, round_trips
from benchmarks.distributed.driving import Driver, driver
from benchmarks.distributed.flows import chain, fan_out, first_task
from benchmarks.distributed.meters import Meter, Run
from benchmarks.distributed.site import Place
from rune.core.messages import encode

__all__ = ["LENGTH", "Bench", "bench", "latencies"]

LENGTH = 50
"""Nodes of a chain."""


class Bench:
    """A place and somebody who has it work."""

    def __init__(self, place: Place, driver: Driver) -> None:
        self.place = place
        self._driver = driver

    async def chains(self, executions: int) -> Run:
        """The nodes of so many chains, all started at once."""
        definition = chain(LENGTH)
        tasks = [first_task(definition, {"n": 0}) for _ in range(executions)]
        meter = Meter(self.place.processes)
        ended = await self._driver.run(tasks)
        run = meter.run(executions * LENGTH)
        for completion in ended.values():
            if await self._driver.value(completion, "$json") != {"n": LENGTH}:
                raise SystemExit(f"a chain came out wrong: {completion.final_context}")
        self.place.purge()
        return run

    async def fan_out(self, items: int, batch: int | Literal["auto"]) -> Run:
        """The items of one execution that splits, edits and aggregates them in order."""
        definition = fan_out(items)
        definition["nodes"][0]["parameters"]["batch_size"] = batch
        task = first_task(definition, {"items": [{"n": n} for n in range(items)]})
        meter = Meter(self.place.processes)
        (completion,) = (await self._driver.run([task])).values()
        run = meter.run(items)
        results = (await self._driver.value(completion, "$all"))["aggregated"]
        if [result["double"] for result in results] != list(range(0, 2 * items, 2)):
            raise SystemExit("the results of a fan-out are wrong, or not in order")
        self.place.purge()
        return run

    async def task_size(self) -> int:
        """Bytes of the Tasks of a chain, on average."""
        sizes: list[int] = []
        async with overhearing(self.place.broker_url, lambda message: sizes.append(len(message.body))):
            await self.chains(1)
        return round(mean(sizes))


@asynccontextmanager
async def bench(place: Place) -> AsyncIterator[Bench]:
    """Somebody to have a place work."""
    async with driver(place.broker_url, place.state_url) as driving:
        yield Bench(place, driving)


async def latencies(place: Place, echo: str, count: int) -> tuple[list[float], list[float]]:
    """Seconds from a first Task to its completion, of one node and of a bare echo, by turns."""
    definition = chain(1)
    taken: tuple[list[float], list[float]] = [], []
    async with round_trips(place.broker_url) as ours, round_trips(echo) as bare:
        for turn in range(count + 10):
            body = encode(first_task(definition, {"n": 0}))
            pair = await ours.seconds(body), await bare.seconds(body)
            if turn >= 10:  # the first ones warm up
                taken[0].append(pair[0])
                taken[1].append(pair[1])
    place.purge()
    return taken
