"""What the machine itself does: the yardstick beside the numbers."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

__all__ = ["sqlite_messages"]

_BODY = b"x" * 2048


def sqlite_messages(messages: int, batch: int) -> float:
    """Messages of 2 kB a second that a bare loop writes, reads and deletes, `batch` to a transaction."""
    with tempfile.TemporaryDirectory() as directory:
        connection = sqlite3.connect(Path(directory) / "bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB)")
        began = time.perf_counter()
        for _ in range(messages // batch):
            _pass_on(connection, batch)
        seconds = time.perf_counter() - began
        connection.close()
    return messages / seconds


def _pass_on(connection: sqlite3.Connection, batch: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO message (body) VALUES (?)", [(_BODY,)] * batch)
    taken = connection.execute("SELECT id, body FROM message ORDER BY id LIMIT ?", (batch,)).fetchall()
    connection.executemany("DELETE FROM message WHERE id = ?", [(id,) for id, _ in taken])
    connection.execute("COMMIT")
