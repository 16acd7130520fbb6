"""A master for each test, on both histories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.master.client import Api, open_api
from tests.servers.postgres import shared_postgres


@pytest.fixture(params=["sqlite", "postgres"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """A running master: all in one file, or the engine in memory and the history in PostgreSQL."""
    if request.param == "sqlite":
        async with open_api(tmp_path / "rune.db") as found:
            yield found
        return
    server = shared_postgres()
    url = server.new_database()
    try:
        async with open_api(None, url) as found:
            yield found
    finally:
        server.drop_database(url)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Api]:
    """One on SQLite, for what has nothing to do with the database."""
    async with open_api(tmp_path / "rune.db") as found:
        yield found
