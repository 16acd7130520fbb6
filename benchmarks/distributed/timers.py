"""What timers cost, and how late they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from statistics import median
from typing import cast
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.distributed import flows
from benchmarks.distributed.driving import Driver, driver
from benchmarks.distributed.flows import first_task
from benchmarks.distributed.site import Place, Site
from rune.backends.redis import open_redis
from rune.backends.redis.state import RedisState
from rune.core.ids import derive, new_execution_id
from rune.core.messages import NodeStatusMessage, encode
from rune.core.operations import Arm, Commit, Record, Timer
from rune.engine.statuses import iso

__all__ = ["arming", "lateness", "percentile", "published_within_a_second"]

_FAR = 30 * 24 * 3600.0
_TOGETHER = 1000
"""Timers that are armed by one call, where only their number counts."""
_TASK = encode(first_task(flows.chain(1), {}))
_SILENCE = 0.3
"""Seconds after which a queue is taken to be empty."""


async def arming(site: Site, pending: int, calls: int) -> tuple[float, float]:
    """Seconds to arm a timer with so many pending and with none; medians of calls made by turns."""
    async with open_redis(site.redis().url) as full, open_redis(site.redis().url) as empty:
        await _fill(full, pending)
        taken: list[tuple[float, float]] = []
        execution = new_execution_id()
        for turn in range(calls + 50):
            pair = [await _arm(state, execution, turn) for state in (full, empty)]
            if turn >= 50:  # the first ones warm up
                taken.append((pair[0], pair[1]))
    return median(full for full, _ in taken), median(empty for _, empty in taken)


async def _arm(state: RedisState, execution: str, number: int) -> float:
    """Seconds of the State call of a wait."""
    step = derive(execution, str(number))
    commit = Commit(step, (), [Record(b'{"type":"sleep"}'), _timer(step, number)])
    began = time.perf_counter()
    await state.apply(execution, [commit])
    return time.perf_counter() - began


async def _fill(state: RedisState, pending: int) -> None:
    """Arm so many timers, many of each execution with one call."""

    async def fill(start: int) -> None:
        execution = new_execution_id()
        timers = [_timer(f"{execution}-{i}", start + i) for i in range(_TOGETHER)]
        await state.apply(execution, [Commit(derive(execution), (), timers)])

    for start in range(0, pending, 4 * _TOGETHER):
        await asyncio.gather(*(fill(start + i * _TOGETHER) for i in range(4)))


def _timer(id: str, number: int) -> Arm:
    return Arm(Timer(id, time.time() + _FAR + number * 7919 % 86_400, _TASK))


async def lateness(place: Place, waits: int) -> list[float]:
    """Seconds by which branches that wait for times in the same second went on too late, in order."""
    async with driver(place.broker_url, place.state_url) as driving:
        second = time.time() + 4 + waits / 400
        dues = [round(second + i / waits, 3) for i in range(waits)]
        task = first_task(flows.waits(), {"times": [iso(due) for due in dues]})
        running = asyncio.create_task(driving.run([task]))
        await asyncio.sleep(second - time.time() - 0.5)
        if len(await _told(driving, "waiting", waits)) < waits:
            raise SystemExit("the waits were not armed in time")
        await running
        ended = await _told(driving, "success", waits)
    place.purge()
    return sorted(at - dues[item] for item, at in ended.items())


def published_within_a_second(place: Place) -> float:
    """The share of the timers whose Tasks the scheduler had in the queue a second after they were due."""
    with urlopen(f"http://127.0.0.1:{place.metrics}/metrics") as answer:
        said: str = answer.read().decode()
    counts = {
        sample.labels["le"]: sample.value
        for metric in text_string_to_metric_families(said)
        for sample in metric.samples
        if sample.name == "rune_timer_lateness_seconds_bucket"
    }
    return counts["1.0"] / counts["+Inf"]


async def _told(driving: Driver, what: str, waits: int) -> dict[int, float]:
    """When each wait was first told of so, as far as that is in the queue."""
    told: dict[int, float] = {}
    heard = cast(AsyncGenerator[list[NodeStatusMessage], None], driving.broker.statuses())
    async with aclosing(heard) as batches:
        try:
            while len(told) < waits:
                async with asyncio.timeout(_SILENCE):
                    batch = await anext(batches)
                for status in batch:
                    if status.node_id == "rest" and status.status == what:
                        at = datetime.fromisoformat(status.executed_at).timestamp()
                        told.setdefault(status.lineage_stack[-1].item_index, at)
        except TimeoutError:
            pass
    return told


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of sorted values does not exceed."""
    return values[min(len(values) - 1, int(len(values) * share))]
