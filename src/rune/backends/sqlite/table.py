"""One kind of row: read through a cache, written back when the transaction ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["Key", "Table", "upsert"]

R = TypeVar("R")
Key = tuple[str | int, ...]
"""The execution first."""


def upsert(name: str, key: Sequence[str], columns: Sequence[str]) -> str:
    """The SQL that writes a row, new or known."""
    names = ", ".join(f'"{column}"' for column in (*key, *columns))
    marks = ", ".join("?" * (len(key) + len(columns)))
    changes = ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
    return (
        f"INSERT INTO {name} ({names}) VALUES ({marks}) "
        f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
    )


class Table(Generic[R]):
    """Rows by key. What is not there is remembered too."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        name: str,
        key: Sequence[str],
        columns: Sequence[str],
        decode: Callable[[Any, Any], R],
        encode: Callable[[R], tuple[Any, ...]],
        *,
        keep: int = 0,
    ) -> None:
        """`decode` makes a row of its key and columns; `keep` rows stay in memory after a transaction."""
        where = " AND ".join(f"{column} = ?" for column in key)
        self._select = f"SELECT {', '.join(columns) or 1} FROM {name} WHERE {where}"
        self._upsert = upsert(name, key, columns)
        self._connection = connection
        self._decode = decode
        self._encode = encode
        self._keep = keep
        self.known: dict[Key, R | None] = {}
        self.changed: dict[Key, R] = {}

    def get(self, *key: str | int) -> R | None:
        """The row, if there is one."""
        try:
            return self.known[key]
        except KeyError:
            row = self.known[key] = self.read(*key)
            return row

    def read(self, *key: str | int) -> R | None:
        """The row as it is in the file."""
        found = self._connection.execute(self._select, key).fetchone()
        return None if found is None else self._decode(key, found)

    def absent(self, keys: Iterable[Key]) -> None:
        """The file has no rows of these keys."""
        for key in keys:
            self.known.setdefault(key, None)

    def put(self, row: R, *key: str | int) -> None:
        """Keep this row; the caller may go on changing it, and puts it again when it does."""
        self.known[key] = self.changed[key] = row

    def drop(self, *key: str | int) -> None:
        """Forget the row; whoever drops it deletes it."""
        self.known[key] = None
        self.changed.pop(key, None)

    def write(self) -> None:
        """Write what has changed."""
        if not self.changed:
            return
        rows = [(*key, *self._encode(row)) for key, row in self.changed.items()]
        self._connection.executemany(self._upsert, rows)
        self.changed.clear()

    def trim(self) -> None:
        """Between transactions: forget everything if it is too much; what is in use comes back."""
        if len(self.known) > self._keep:
            self.known.clear()

    def clear(self) -> None:
        """Forget everything, changes too."""
        self.known.clear()
        self.changed.clear()
