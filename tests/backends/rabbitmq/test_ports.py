"""What every Broker promises, of this one; what it cannot do the same way is tested in `test_messages`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rune.backends.rabbitmq import open_rabbitmq
from rune.core.ports import Broker
from tests.backends import test_broker_ports as ports
from tests.backends.rabbitmq.taking import Place

_OTHERWISE = {
    "test_the_highest_priority_comes_first",  # RabbitMQ has priorities from 0 to 10
    "test_a_dead_letter_does_not_come_back",  # dead letters are read by a call
    "test_statuses_go_to_whoever_listens",  # whether a master listens is not known
}


@pytest.fixture
async def broker(place: Place) -> AsyncIterator[Broker]:
    async with open_rabbitmq(place.url, retry_delays=[0.05]) as broker:
        yield broker


worker = ports.worker
for _name, _test in vars(ports).items():
    if _name.startswith("test_") and _name not in _OTHERWISE:
        globals()[_name] = _test
