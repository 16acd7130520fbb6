"""Where progress is shown: nowhere, as lines, or live in a terminal."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Protocol

from rune.cli.tally import Row, Tally

__all__ = ["LogLines", "Quiet", "View", "choose", "duration", "follow"]


class View(Protocol):
    """Something that shows a tally."""

    tally: Tally
    pause: float
    """Seconds between two looks."""

    def show(self) -> None:
        """Show what has changed."""

    def close(self, *, finished: bool) -> None:
        """Show the last of it; `finished` says that nothing is left to run."""

    def log(self, line: str) -> None:
        """Show a line that a node has written to the log."""


class Quiet:
    """Shows nothing but warnings that nodes log."""

    pause = 3600.0

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def show(self) -> None:
        """Nothing."""

    def close(self, *, finished: bool) -> None:
        """Nothing."""

    def log(self, line: str) -> None:
        """A line on standard error."""
        sys.stderr.write(line + "\n")


def choose(tally: Tally, *, quiet: bool) -> View:
    """The view that fits standard error."""
    if quiet:
        return Quiet(tally)
    if sys.stderr.isatty():
        from rune.cli.progress import Live

        return Live(tally)
    from rune.cli.plain import Lines

    return Lines(tally)


async def follow(view: View) -> None:
    """Show what changes, a few times a second, until cancelled."""
    while True:
        await asyncio.sleep(view.pause)
        view.show()


class LogLines(logging.Handler):
    """Hands what is logged to a view."""

    def __init__(self, view: View, level: int) -> None:
        super().__init__(level)
        self._view = view
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        self._view.log(self.format(record))


def duration(seconds: float) -> str:
    """A time span in few characters."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(i for i, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def counted(row: Row) -> str:
    """How many of a node's steps have ended, where they are several."""
    several = f"{row.succeeded:,}" if row.depth and row.succeeded else ""
    failed = f"{row.failed:,} failed" if row.failed and row.depth else ""
    return ", ".join(part for part in (several, failed) if part)
