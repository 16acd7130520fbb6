"""The wait node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import DefinitionError, NodeError
from rune.core.outcome import Sleep
from rune.nodes.wait import Wait
from tests.nodes.fakes import NOW, FakeContext, made, run


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [
        ({}, 1),
        ({"amount": 0}, 0),
        ({"amount": "1.5"}, 1.5),
        ({"amount": 2, "unit": "minutes"}, 120),
        ({"amount": 1, "unit": "hour"}, 3600),
        ({"amount": 0.5, "unit": "days"}, 43200),
        ({"amount": "{{ $n }}", "unit": "seconds"}, 30),
    ],
)
async def test_interval(parameters: dict[str, Any], seconds: float) -> None:
    outcome = await run(Wait, FakeContext({"$n": 30}), **parameters)
    assert isinstance(outcome, Sleep)
    assert outcome.until == NOW + seconds
    assert outcome.output["timer_id"] == "step-1"


async def test_output_says_when() -> None:
    outcome = await run(Wait, amount=1, unit="days")
    assert isinstance(outcome, Sleep)
    assert outcome.output == {"resume_at": "2026-01-02T00:00:00.250Z", "timer_id": "step-1"}


@pytest.mark.parametrize(
    ("until", "seconds"),
    [
        ("2026-01-01T00:01:00Z", 1767225660),
        ("2026-01-01T00:01:00", 1767225660),
        ("2026-01-01T02:01:00+02:00", 1767225660),
        (1767225660, 1767225660),
        ("2020-01-01", 1577836800),
    ],
)
async def test_until(until: Any, seconds: float) -> None:
    outcome = await run(Wait, resume="until", until=until)
    assert isinstance(outcome, Sleep)
    assert outcome.until == seconds


async def test_until_somebody_calls() -> None:
    assert await run(Wait, resume="webhook") == Sleep(None, {"resume_at": None, "timer_id": "step-1"})


@pytest.mark.parametrize("amount", [1e12, 1e300, "inf"])
async def test_too_long(amount: Any) -> None:
    with pytest.raises(NodeError, match="9999"):
        await run(Wait, amount=amount, unit="days")


async def test_until_what_is_no_time() -> None:
    with pytest.raises(NodeError, match="ISO 8601"):
        await run(Wait, resume="until", until="soon")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"amount": -1}, "amount"),
        ({"amount": "much"}, "amount"),
        ({"unit": "fortnights"}, "unit"),
        ({"resume": "until"}, "`until`"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        made(Wait, FakeContext(), parameters)
