"""The benchmarks measure what they say."""

from __future__ import annotations

import pytest

from benchmarks.execution import measured
from benchmarks.expressions import microseconds
from benchmarks.machine import sqlite_messages
from benchmarks.measures import Measure, Table, ratio
from benchmarks.startup import start_times


@pytest.mark.parametrize("kind", ["chain", "fan_out"])
def test_an_execution_in_a_process_of_its_own(kind: str) -> None:
    numbers = measured(kind, 20)
    assert set(numbers) == {"seconds", "cpu", "megabytes"}
    assert all(number > 0 for number in numbers.values())


def test_the_machine_and_the_parts() -> None:
    assert sqlite_messages(10, 5) > 0
    assert microseconds() > 0
    times = start_times(rounds=1)
    assert {name: len(taken) for name, taken in times.items()} == {"python": 1, "help": 1, "run": 1}


def test_a_bound_holds_or_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("Speed")
    assert table.add(Measure("fast", 5000, "/s", at_least=2000)).verdict == "ok"
    assert table.add(Measure("slow", 12.5, "×", at_most=12)).verdict == "MISSED"
    assert table.add(Measure("plain", 1.234, "ms")).verdict == ""
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        ["Speed"],
        ["fast", "5,000", "/s", "≥", "2,000", "/s", "ok"],
        ["slow", "12.5", "×", "≤", "12", "×", "MISSED"],
        ["plain", "1.23", "ms"],
    ]


def test_ratios_are_of_medians() -> None:
    assert ratio([2.0, 4.0, 100.0], [1.0, 2.0, 3.0]) == 2
