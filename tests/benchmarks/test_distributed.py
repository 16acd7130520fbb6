"""The benchmark on RabbitMQ and Redis runs to its end, and tells what it says it measures."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.distributed.__main__ import QUICK, measure
from benchmarks.distributed.meters import Run, median_cpu, median_rate
from benchmarks.distributed.timers import percentile


@pytest.mark.timeout(400)  # a busy machine takes its time to start three servers and six processes
def test_everything_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(measure(QUICK))
    told = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    beginnings = (
        "The yardstick",
        "bare loop",
        "One worker",
        "4 chains of 50 nodes",
        "statuses batched",
        "fan-out of 200 items, batch_size 1",
        "fan-out, batch_size auto",
        "Memory",
        "at rest",
        "after 1 rounds",
        "Latency",
        "bare publish",
        "one node",
        "Timers",
        "arming one",
        "50 due in one second: share published within one",
        "told to have ended: p99",
    )
    assert len(told) == len(beginnings)
    for line, beginning in zip(told, beginnings, strict=True):
        assert line.startswith(beginning)


def test_medians_and_percentiles() -> None:
    runs = [Run(rate, {"worker": rate * 10}) for rate in (1.0, 5.0, 2.0)]
    assert (median_rate(runs), median_cpu(runs)) == (2.0, {"worker": 20.0})
    assert percentile(range(1, 101), 0.99) == 100
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
