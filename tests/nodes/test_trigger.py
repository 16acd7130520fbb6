"""The trigger nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import DefinitionError
from rune.core.node import NodeType
from rune.core.outcome import Done
from rune.nodes.trigger import ManualTrigger, ScheduledTrigger, WebhookTrigger
from tests.nodes.fakes import FakeContext, made, run


@pytest.mark.parametrize("type", [ManualTrigger, WebhookTrigger])
async def test_payload_is_passed_on(type: type[NodeType]) -> None:
    assert type.trigger
    assert await run(type, FakeContext({"$trigger": {"a": 1}})) == Done({"a": 1})
    assert await run(type) == Done({})


@pytest.mark.parametrize(
    "parameters",
    [{"cron": "0 9 * * 1-5"}, {"cron": "@daily"}, {"amount": "5", "unit": "minutes"}, {"amount": 0.5}],
)
def test_schedules(parameters: dict[str, Any]) -> None:
    made(ScheduledTrigger, FakeContext(), parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"cron": "0 9 * * 1-5", "amount": 1},
        {"cron": "hourly"},
        {"amount": 0},
        {"amount": 1, "unit": "moons"},
    ],
)
def test_wrong_schedules_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        made(ScheduledTrigger, FakeContext(), parameters)
