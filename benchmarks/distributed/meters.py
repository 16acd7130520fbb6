"""What a run took: its rate, and the time of the processors, which a busy machine changes less."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

__all__ = ["Meter", "Run", "median_cpu", "median_rate", "megabytes", "peak_megabytes"]

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """One run."""

    rate: float
    """Units a second."""
    cpu: Mapping[str, float]
    """Microseconds of processor time a unit, by process."""


class Meter:
    """Times what is done from its making on."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._used = {name: _processor_seconds(pid) for name, pid in processes.items()}
        self._began = time.perf_counter()

    def run(self, units: int) -> Run:
        """What was done, as a run of so many units."""
        seconds = time.perf_counter() - self._began
        cpu = {
            name: (_processor_seconds(pid) - self._used[name]) / units * 1e6
            for name, pid in self._processes.items()
        }
        return Run(units / seconds, cpu)


def median_rate(runs: Sequence[Run]) -> float:
    """The median of their rates."""
    return median(run.rate for run in runs)


def median_cpu(runs: Sequence[Run]) -> dict[str, float]:
    """The medians of their processor times."""
    return {name: median(run.cpu[name] for run in runs) for name in runs[0].cpu}


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def megabytes(pid: int) -> float:
    """The memory that a process has now."""
    return _megabytes(pid, "VmRSS:")


def peak_megabytes(pid: int) -> float:
    """The most memory that a process ever had."""
    return _megabytes(pid, "VmHWM:")


def _megabytes(pid: int, what: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(what)[2].split()[0]) / 1024
