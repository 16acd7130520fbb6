"""Every test of the history runs on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rune.history import Database, History, open_database, open_history
from tests.servers.postgres import shared_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an empty database is."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'history.db'}"
        return
    server = shared_postgres()
    url = server.new_database()
    yield url
    server.drop_database(url)


@pytest.fixture
async def database(address: str) -> AsyncIterator[Database]:
    """An empty database."""
    async with open_database(address) as database:
        yield database


@pytest.fixture
async def history(address: str) -> AsyncIterator[History]:
    """An empty history."""
    async with open_history(address) as history:
        yield history
