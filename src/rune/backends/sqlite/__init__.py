"""Broker, State and timers in one SQLite file, which this process alone has open."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rune.backends.sqlite.broker import SqliteBroker
from rune.backends.sqlite.database import Database
from rune.backends.sqlite.state import SqliteState

__all__ = ["Database", "SqliteBroker", "SqliteState", "open_sqlite"]


@asynccontextmanager
async def open_sqlite(
    path: str, *, synchronous: str = "normal", clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[SqliteBroker, SqliteState]]:
    """Open the file at `path`, new or left behind.

    What is answered survives the death of the process; with `synchronous="full"` also that of the machine.
    """
    database = Database(path, synchronous)
    try:
        broker, state = SqliteBroker(database, clock), SqliteState(database, clock)
        await state.restore()
        await broker.restore()
        try:
            yield broker, state
        finally:
            await broker.close()
    finally:
        await database.close()
