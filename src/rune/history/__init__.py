"""What is durable: workflows, executions and all that happened in them, in SQLite or PostgreSQL."""

from __future__ import annotations

from rune.history.database import Database, Row, Statement, open_database
from rune.history.history import History, open_history

__all__ = ["Database", "History", "Row", "Statement", "open_database", "open_history"]
