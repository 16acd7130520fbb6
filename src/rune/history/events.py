"""What happened in an execution, one after another: a log that only grows, in compressed segments."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from rune.core.errors import ErrorInfo
from rune.history.database import Database
from rune.history.paging import Page, after, cursor_after, paged

__all__ = ["Event", "Events", "packed"]

_SMALL = 1024
"""Bytes up to which a segment is not worth compressing."""
_SEGMENTS = 20
"""Segments that are read at a time."""
_LOOKED_AT = 10_000
"""Events after which a page ends even if few of them, or none, are wanted."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One thing that happened: a step's status, or `kind` to the execution as a whole."""

    at: float
    kind: str
    """`running`, `waiting`, `success`, `failed` of a step; of the execution its new status, or else."""
    node: str = ""
    step: str = ""
    barrier: str = ""
    item: int | None = None
    attempt: int = 1
    duration_ms: int = 0
    error: ErrorInfo | None = None
    details: dict[str, Any] | None = None
    seq: int = 0
    """Its number; not stored with it."""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(list[Event])


def packed(events: Sequence[Event]) -> bytes:
    """A segment's bytes."""
    data = _encode(events)
    return data if len(data) < _SMALL else zlib.compress(data, 1)


def _unpacked(data: bytes) -> list[Event]:
    # A compressed segment does not begin as a list does.
    return _decoder.decode(data if data[:1] == b"[" else zlib.decompress(data))


class Events:
    """Reads the log; whoever changes something writes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        execution: str,
        *,
        cursor: str | None = None,
        after_seq: int = 0,
        limit: int = 50,
        node: str | None = None,
        step: str | None = None,
    ) -> Page[Event]:
        """Events in the order in which they became known, after a page or after a number.

        A page of those of one node or step may have fewer than `limit`, or none, and go on.
        """
        if cursor is not None:
            (after_seq,) = after(cursor, int)
        last_seq = after_seq + _LOOKED_AT
        found: list[Event] = []
        while len(found) <= limit:
            rows = await self._database.fetch(
                """SELECT first_seq, last_seq, data FROM history_event
                WHERE execution_id = $1 AND last_seq > $2 ORDER BY first_seq LIMIT $3""",
                *(execution, after_seq, _SEGMENTS),
            )
            for row in rows:
                for seq, event in enumerate(_unpacked(row["data"]), row["first_seq"]):
                    if seq > after_seq and _wanted(event, node, step):
                        found.append(msgspec.structs.replace(event, seq=seq))
                after_seq = row["last_seq"]
            if len(rows) < _SEGMENTS:
                break
            if after_seq >= last_seq and len(found) <= limit:
                return Page(found, cursor_after(after_seq))
        return paged(found, limit, lambda event: (event.seq,))


def _wanted(event: Event, node: str | None, step: str | None) -> bool:
    return (node is None or event.node == node) and (step is None or event.step == step)
