"""Recording is measured, and what was recorded is checked."""

from __future__ import annotations

import pytest

from benchmarks.recording import measured


@pytest.mark.parametrize("kind", ["small", "fan_out"])
def test_recording_is_measured(kind: str) -> None:
    numbers = measured(kind, 40)
    assert set(numbers) == {"statuses", "seconds", "cpu", "bare", "bytes", "megabytes"}
    assert all(number > 0 for name, number in numbers.items() if name != "bytes")
