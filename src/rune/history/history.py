"""The history: its parts, each of which reads and writes tables of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rune.history.changes import Changes
from rune.history.database import Database, open_database
from rune.history.events import Events
from rune.history.executions import Executions
from rune.history.items import Items
from rune.history.migrating import migrate
from rune.history.recording import Recording
from rune.history.retention import Retention
from rune.history.steps import Steps
from rune.history.values import Values
from rune.history.workflows import Workflows

if TYPE_CHECKING:
    from rune.backends import sqlite

__all__ = ["History", "open_history"]


class History:
    """Everything that is known for good, by what it is about."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.workflows = Workflows(database)
        self.executions = Executions(database)
        self.steps = Steps(database)
        self.items = Items(database)
        self.events = Events(database)
        self.values = Values(database)
        self.recording = Recording(database)
        self.retention = Retention(database)
        self.changes = Changes(database)


@asynccontextmanager
async def open_history(where: str | sqlite.Database) -> AsyncIterator[History]:
    """The history at an address or in an open SQLite file, its tables brought up to date."""
    async with open_database(where) as database:
        await migrate(database)
        yield History(database)
