"""A private RabbitMQ and a private Redis for all tests here; a virtual host and a database for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributed.client import Client
from tests.distributed.fleet import Fleet, fleet
from tests.servers.rabbitmq import RabbitMQ, shared_rabbitmq
from tests.servers.redis import RedisServer, redis_server

_databases = itertools.count()


@pytest.fixture(scope="session")
def rabbit() -> RabbitMQ:
    return shared_rabbitmq()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """It syncs before it answers, so that it may be killed."""
    with redis_server(durable=True) as server:
        yield server


@pytest.fixture
def crew(rabbit: RabbitMQ, redis: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet for one test, without processes yet."""
    with fleet(rabbit, redis, next(_databases) % 15 + 1, tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def shared(rabbit: RabbitMQ, redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three workers and two schedulers for all tests that harm nobody."""
    with fleet(rabbit, redis, 0, tmp_path_factory.mktemp("fleet")) as made:
        for _ in range(2):
            made.worker("--concurrency", "16", "--prefetch", "32")
        made.worker("--concurrency", "4", "--prefetch", "4", RUNE_STATUS_BATCH_MS="5")
        for _ in range(2):
            made.scheduler()
        yield made


@pytest.fixture(scope="session")
def client(shared: Fleet) -> Client:
    """Somebody who speaks AMQP with the shared fleet."""
    return shared.client()
