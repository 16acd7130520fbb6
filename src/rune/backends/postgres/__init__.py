"""The history's tables in PostgreSQL, for any number of masters."""

from __future__ import annotations

from rune.backends.postgres.database import PostgresDatabase, open_postgres

__all__ = ["PostgresDatabase", "open_postgres"]
