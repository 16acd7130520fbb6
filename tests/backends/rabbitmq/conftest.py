"""A private RabbitMQ for all tests here, and a virtual host of it for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rune.backends.rabbitmq import RabbitBroker, open_rabbitmq
from tests.backends.rabbitmq.taking import Place
from tests.servers.rabbitmq import RabbitMQ, shared_rabbitmq


@pytest.fixture(scope="session")
def server() -> RabbitMQ:
    return shared_rabbitmq()


@pytest.fixture
def place(server: RabbitMQ) -> Iterator[Place]:
    """An empty virtual host."""
    vhost = server.add_vhost()
    yield Place(server, vhost)
    server.delete_vhost(vhost)


@pytest.fixture
async def broker(place: Place) -> AsyncIterator[RabbitBroker]:
    async with open_rabbitmq(place.url) as broker:
        yield broker
