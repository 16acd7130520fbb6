"""Print the speed of Rune on this machine."""

from __future__ import annotations

import os
import platform
from statistics import median

from benchmarks.execution import measured
from benchmarks.expressions import TYPICAL, microseconds
from benchmarks.machine import sqlite_messages
from benchmarks.measures import Measure, Table, ratio
from benchmarks.recording import measure_recording
from benchmarks.serving import measure_serving
from benchmarks.startup import start_times
from benchmarks.viewers import measure_viewers
from rune import __version__

_CHAIN = 1_000
_SMALL, _LARGE = 10_000, 100_000


def main() -> None:
    """Measure, and print as it goes."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"Rune {__version__}, {python}, {platform.system()}, {os.cpu_count()} cores")
    times = start_times()

    table = Table("The machine")
    table.add(Measure("python -c pass", median(times["python"]) * 1000, "ms"))
    table.add(Measure("SQLite WAL, 2 kB messages, one by one", sqlite_messages(5_000, 1), "/s"))
    table.add(Measure("SQLite WAL, 2 kB messages, a hundred at a time", sqlite_messages(20_000, 100), "/s"))

    table = Table("Starting, in times of `python -c pass`")
    table.add(Measure("rune --help", ratio(times["help"], times["python"]), "×", at_most=6))
    table.add(Measure("rune run, three nodes", ratio(times["run"], times["python"]), "×", at_most=12))

    table = Table("Executions, durable on SQLite")
    runs = [measured("chain", _CHAIN) for _ in range(3)]
    rate = _CHAIN / _median(runs, "seconds")
    name = f"chain of {_CHAIN:,} log nodes"
    table.add(Measure(name, rate, "nodes/s", at_least=2_000, note=_per_cpu(_CHAIN, runs)))
    # By turns: what else the machine does then slows both alike.
    rounds = [(measured("fan_out", _SMALL), measured("fan_out", _LARGE)) for _ in range(3)]
    runs, larges = [small for small, _ in rounds], [large for _, large in rounds]
    rate = _SMALL / _median(runs, "seconds")
    name = f"split → edit → aggregator, {_SMALL:,} items"
    table.add(Measure(name, rate, "items/s", at_least=10_000, note=_per_cpu(_SMALL, runs)))
    seconds = _median(larges, "seconds")
    times_of = seconds / _median(runs, "seconds")
    name = f"the same with {_LARGE:,} items, in times of that"
    table.add(Measure(name, times_of, "×", at_most=11, note=f"{seconds:.1f} s"))
    peak = max(large["megabytes"] for large in larges)
    table.add(Measure("  its peak memory", peak, "MB", at_most=400))

    table = Table("Expressions, once compiled")
    table.add(Measure(TYPICAL, microseconds(), "µs", at_most=3))

    measure_serving()
    measure_serving(distributed=True)
    measure_recording()
    measure_recording(postgres=True)
    measure_viewers()


def _median(runs: list[dict[str, float]], what: str) -> float:
    return median(run[what] for run in runs)


def _per_cpu(size: int, runs: list[dict[str, float]]) -> str:
    """What a busy machine does not change as much."""
    return f"{size / _median(runs, 'cpu'):,.0f} per second of CPU"


if __name__ == "__main__":
    main()
