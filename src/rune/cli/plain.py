"""Progress as lines, where there is no terminal: one for each change, few a second for a fan-out."""

from __future__ import annotations

import sys
import time

from rune.cli.tally import Row, Tally
from rune.cli.view import counted, duration
from rune.core.node import Role

__all__ = ["Lines"]

_FAN_OUT = 1.0
"""Seconds between two lines about one fan-out."""


class Lines:
    """Writes a line to standard error when a node's state has changed.

    Of the nodes inside a fan-out only its aggregator is shown while it runs, each of them at the end.
    """

    pause = 0.2

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._told: dict[int, str] = {}
        self._at: dict[int, float] = {}

    def show(self) -> None:
        """Write what has changed since the last time."""
        self._write(last=False)

    def close(self, *, finished: bool) -> None:
        """Write what has changed, and at the end what became of the nodes inside fan-outs."""
        self._write(last=finished)

    def log(self, line: str) -> None:
        """Write a line of the log, in its place among the others."""
        self.show()
        _put(line)

    def _write(self, *, last: bool) -> None:
        for row in self.tally:
            if not row.began:
                continue
            if not last and row.depth and row.node.role is not Role.GATHER:
                continue
            self._tell(row, last=last)
        sys.stderr.flush()

    def _tell(self, row: Row, *, last: bool) -> None:
        state = row.ended if last else row.state
        text = f"{state}{_about(row, state)}"
        key = id(row)
        if self._told.get(key) == text:
            return
        if state == "running" and not last and row.changed - self._at.get(key, 0.0) < _FAN_OUT:
            return
        self._told[key] = text
        self._at[key] = row.changed
        clock = time.strftime("%H:%M:%S", time.localtime(row.changed)) + f".{row.changed % 1:.3f}"[2:]
        _put(f"{clock} {'  ' * row.depth}{row.node.id} {text}")


def _about(row: Row, state: str) -> str:
    """What there is to say beside the state."""
    parts: list[str] = []
    if row.node.role is Role.GATHER:
        done, total, failed, skipped = row.processed
        reading = row.items is not None and row.items.reading
        parts.append(f"{done:,} items so far" if reading else f"{done:,}/{total:,} items")
        parts += [f"{failed:,} failed"] if failed else []
        parts += [f"{skipped:,} skipped"] if skipped else []
    elif row.node.role is Role.SPLIT and row.items is not None and row.succeeded:
        parts.append("items as they are read" if row.items.reading else f"{row.items.total:,} items")
    elif row.arrived and state == "waiting":
        parts.append(f"{row.arrived[0]} of {row.arrived[1]} arrived")
    elif state == "waiting" and row.resume_at:
        parts.append("until " + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.resume_at)))
    elif several := counted(row):
        parts.append(several)
    if state in ("success", "failed") and row.changed - row.began >= 0.001:
        parts.append(duration(row.changed - row.began))
    if row.error is not None and (state == "failed" or row.node.error.type == "ignore"):
        parts.append(f"{row.error.code}: {row.error.message}")
    return f" ({', '.join(parts)})" if parts else ""


def _put(line: str) -> None:
    sys.stderr.write(line + "\n")
