"""Print the speed of Rune on RabbitMQ and Redis, as shares of what a bare client does here."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.distributed.bare import IN_FLIGHT, loop
from benchmarks.distributed.meters import Run, median_cpu, median_rate, megabytes
from benchmarks.distributed.runs import LENGTH, Bench, bench, latencies
from benchmarks.distributed.site import Site, site
from benchmarks.distributed.timers import arming, lateness, percentile, published_within_a_second
from benchmarks.measures import Measure, Table
from rune import __version__

BATCH_MS = 50


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    rounds: int = 5
    messages: int = 20_000
    executions: int = 200
    items: int = 10_000
    trips: int = 300
    pending: int = 1_000_000
    calls: int = 2_000
    due: int = 10_000


QUICK = Sizes(rounds=1, messages=500, executions=4, items=200, trips=5, pending=2_000, calls=20, due=50)
"""Enough to see that everything works, and far too little to measure."""


async def measure(sizes: Sizes) -> None:
    """Measure everything, and print it as it comes."""
    with site() as here:
        await _rates(here, sizes)
        await _latency(here, sizes)
        await _timers(here, sizes)


async def _rates(here: Site, sizes: Sizes) -> None:
    bare_url = here.vhost()
    async with AsyncExitStack() as stack:
        plain: Bench = await stack.enter_async_context(bench(here.place()))
        patient = here.place(RUNE_STATUS_BATCH_MS=str(BATCH_MS))
        batched: Bench = await stack.enter_async_context(bench(patient))
        worker = plain.place.processes["worker"]
        rest = megabytes(worker)
        size = await plain.task_size()
        await batched.chains(1)
        runs: dict[str, list[Run]] = {name: [] for name in ("bare", "plain", "batched", "one", "auto")}
        memory: list[float] = []
        # By turns: what else the machine does then slows all alike.
        for _ in range(sizes.rounds):
            runs["bare"].append(await loop(bare_url, here.bare_processes, size, sizes.messages))
            runs["plain"].append(await plain.chains(sizes.executions))
            runs["batched"].append(await batched.chains(sizes.executions))
            runs["one"].append(await batched.fan_out(sizes.items, 1))
            runs["auto"].append(await batched.fan_out(sizes.items, "auto"))
            memory.append(megabytes(worker))
    _tell_rates(runs, size, sizes)
    table = Table("Memory of a worker that runs chains")
    table.add(Measure("at rest", rest, "MB", at_most=120))
    name = f"after {sizes.rounds} rounds, in times of that after one"
    note = f"{memory[0]:.0f} MB, then {memory[-1]:.0f} MB"
    table.add(Measure(name, memory[-1] / memory[0], "×", at_most=1.1, note=note))


def _tell_rates(runs: dict[str, list[Run]], size: int, sizes: Sizes) -> None:
    bare = median_rate(runs["bare"])
    table = Table("The yardstick")
    name = f"bare loop, {size:,}-byte bodies, {IN_FLIGHT} in flight"
    table.add(Measure(name, bare, "messages/s", note=_cpu(runs["bare"])))
    table = Table("One worker, in times of the bare loop")
    for name, kind, unit, share in (
        (f"{sizes.executions} chains of {LENGTH} nodes", "plain", "nodes/s", 0.5),
        (f"  statuses batched for {BATCH_MS} ms", "batched", "nodes/s", 0.75),
        (f"  fan-out of {sizes.items:,} items, batch_size 1", "one", "items/s", 0.25),
        ("  fan-out, batch_size auto", "auto", "items/s", 1.0),
    ):
        rate = median_rate(runs[kind])
        note = f"{rate:,.0f} {unit}; {_cpu(runs[kind])}"
        table.add(Measure(name, rate / bare, "×", at_least=share, note=note))


def _cpu(runs: list[Run]) -> str:
    """What a busy machine does not change as much."""
    return "CPU: " + ", ".join(f"{name} {µs:.0f} µs" for name, µs in median_cpu(runs).items())


async def _latency(here: Site, sizes: Sizes) -> None:
    ours, bare = await latencies(here.place(), here.echo(), sizes.trips)
    table = Table("Latency, one at a time")
    table.add(Measure("bare publish, consume, publish, consume", median(bare) * 1000, "ms", note="p50"))
    note = f"{median(ours) * 1000:.2f} ms"
    times = median(ours) / median(bare)
    table.add(Measure("one node, Task to completion, in times of that", times, "×", at_most=3, note=note))


async def _timers(here: Site, sizes: Sizes) -> None:
    table = Table("Timers")
    full, empty = await arming(here, sizes.pending, sizes.calls)
    name = f"arming one with {sizes.pending:,} pending, with none"
    note = f"{full * 1e6:.0f} µs, {empty * 1e6:.0f} µs"
    table.add(Measure(name, full / empty, "×", at_most=1.2, note=note))
    place = here.place(scheduler=True, RUNE_STATUS_BATCH_MS=str(BATCH_MS))
    late = await lateness(place, sizes.due)
    name = f"{sizes.due:,} due in one second: share published within one"
    table.add(Measure(name, published_within_a_second(place), "", at_least=0.99))
    note = f"p50 {percentile(late, 0.5):.2f} s, last {late[-1]:.2f} s"
    name = "  told to have ended: p99 too late by"
    table.add(Measure(name, max(0.0, percentile(late, 0.99)), "s", at_most=1, note=note))


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that it works, and measure nothing")
    sizes = QUICK if parser.parse_args().quick else Sizes()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"Rune {__version__}, {python}, {platform.system()}, {os.cpu_count()} cores", flush=True)
    asyncio.run(measure(sizes))


if __name__ == "__main__":
    main()
