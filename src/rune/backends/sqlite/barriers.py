"""Barriers: what of one hardly ever changes, and its tally."""

from __future__ import annotations

import sqlite3
from operator import attrgetter
from typing import Any

import msgspec

from rune.backends.sqlite.table import Key, upsert
from rune.core.rows import BarrierRow, Fold

__all__ = ["Barriers"]

_FIXED = (
    "parent",
    "total",
    "width",
    "tolerated",
    "need_success",
    "window",
    "keep_results",
    "timer",
    "release",
    "refill",
)
_TALLY = (
    "published",
    "source",
    "succeeded",
    "failed",
    "skipped",
    "closed",
    "failure",
    "closer",
    "first_error",
    "folds",
)
_COLUMNS = (*_FIXED, *_TALLY)

_SELECT = f"""
    SELECT {", ".join(f'"{column}"' for column in _COLUMNS)}
    FROM barrier JOIN tally ON tally.execution = barrier.execution AND tally.barrier = barrier.id
    WHERE barrier.execution = ? AND barrier.id = ?
"""
_REPLACE = upsert("barrier", ("execution", "id"), _FIXED)
_UPSERT = upsert("tally", ("execution", "barrier"), _TALLY)

_fixed = attrgetter(*_FIXED)
_counts = attrgetter(*_TALLY[:-1])
# JSON, for it has whole numbers of any size: sums are kept as exact fractions.
_encode_folds = msgspec.json.Encoder().encode
_decode_folds = msgspec.json.Decoder(list[Fold]).decode


class Barriers:
    """As Table, over two tables: an item that ends rewrites the small one only."""

    def __init__(self, connection: sqlite3.Connection, *, keep: int) -> None:
        self._connection = connection
        self._keep = keep
        self.known: dict[Key, BarrierRow | None] = {}
        self.changed: dict[Key, BarrierRow] = {}
        self._whole: set[Key] = set()
        """Those of the changed ones that are written to both tables."""

    def get(self, execution: str, barrier: str) -> BarrierRow | None:
        """The barrier, if there is one."""
        key = (execution, barrier)
        try:
            return self.known[key]
        except KeyError:
            row = self.known[key] = self.read(execution, barrier)
            return row

    def read(self, execution: str, barrier: str) -> BarrierRow | None:
        """The barrier as it is in the file."""
        found = self._connection.execute(_SELECT, (execution, barrier)).fetchone()
        if found is None:
            return None
        values: dict[str, Any] = dict(zip(_COLUMNS, found, strict=True))
        values["folds"] = _decode_folds(values["folds"])
        return BarrierRow(barrier, **values)

    def put(self, execution: str, row: BarrierRow, *, whole: bool) -> None:
        """Keep this barrier, new or changed."""
        key = (execution, row.id)
        if whole or self.known.get(key) is None:
            self._whole.add(key)
        self.known[key] = self.changed[key] = row

    def write(self) -> None:
        """Write what has changed."""
        if self._whole:
            whole = [(*key, *_fixed(self.changed[key])) for key in self._whole]
            self._connection.executemany(_REPLACE, whole)
            self._whole.clear()
        rows = [(*key, *_counts(row), _encode_folds(row.folds)) for key, row in self.changed.items()]
        self._connection.executemany(_UPSERT, rows)
        self.changed.clear()

    def trim(self) -> None:
        """Between transactions: forget everything if it is too much; what is in use comes back."""
        if len(self.known) > self._keep:
            self.known.clear()

    def clear(self) -> None:
        """Forget everything, changes too."""
        self.known.clear()
        self.changed.clear()
        self._whole.clear()
