"""Bring a database's tables up to date, one numbered migration after another, whoever else does the same."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rune.core.errors import ConflictError, RuneError
from rune.history.database import Database, Dialect, Statement

__all__ = ["Migration", "TooNew", "migrate", "migrations"]

_LOCK = int.from_bytes(b"Rune")
"""Names the advisory lock under which PostgreSQL lets one process at a time change tables."""
_TABLE = """CREATE TABLE IF NOT EXISTS migration (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at DOUBLE PRECISION NOT NULL)"""


class TooNew(RuneError):
    """The database was made by a later version of this program."""


class Migration(NamedTuple):
    """One file of `migrations/`: statements that end with a semicolon at the end of a line.

    The text is the same for both databases, but for comments like `/* sqlite: WITHOUT ROWID */`, which are
    part of it for the one they name.
    """

    number: int
    name: str
    text: str

    def statements(self, dialect: Dialect) -> list[Statement]:
        """What to carry out on this kind of database."""
        text = re.sub(r"--.*", "", self.text)
        text = re.sub(rf"/\* {dialect}: (.*?) \*/", r"\1", text)
        return [Statement(part) for part in re.split(r";\s*(?:\n|\Z)", text) if part.strip()]


@cache
def migrations() -> tuple[Migration, ...]:
    """All there are, in order."""
    found = []
    for file in files("rune.history").joinpath("migrations").iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


async def migrate(database: Database, wanted: Sequence[Migration] | None = None) -> list[Migration]:
    """Carry out what this database has not seen yet, and say what that was."""
    wanted = migrations() if wanted is None else wanted
    await database.write(*_alone(database), Statement(_TABLE))
    done = []
    for migration in wanted:
        if migration.number in await _applied(database, wanted):
            continue
        mark = Statement(
            "INSERT INTO migration (number, name, applied_at) VALUES ($1, $2, $3)",
            [(migration.number, migration.name, time.time())],
        )
        try:
            await database.write(*_alone(database), mark, *migration.statements(database.dialect))
        except ConflictError:
            # Another master was faster.
            if migration.number not in await _applied(database, wanted):
                raise
        else:
            done.append(migration)
    return done


def _alone(database: Database) -> list[Statement]:
    """SQLite has one writer at a time anyway."""
    if database.dialect == "sqlite":
        return []
    return [Statement("SELECT pg_advisory_xact_lock($1)", [(_LOCK,)])]


async def _applied(database: Database, wanted: Sequence[Migration]) -> set[int]:
    applied = {row["number"] for row in await database.fetch("SELECT number FROM migration")}
    unknown = applied - {migration.number for migration in wanted}
    if unknown:
        raise TooNew(
            f"the history was made by a newer Rune: it has migration {max(unknown)}, "
            f"and this one knows {max((m.number for m in wanted), default=0)}; run that version, "
            "or restore a copy from before"
        )
    return applied
