"""What becomes of due times that nobody was there for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import Literal, NamedTuple

from rune.master.triggers.timetable import Timetable, dues

__all__ = ["Catch", "Missed", "catch_up"]

Missed = Literal["skip", "run_once", "run_all"]

_ON_TIME = 60.0
"""Seconds after which a due time counts as missed."""


class Catch(NamedTuple):
    """What to do about the times that are due by now."""

    firings: list[float]
    """The due times to fire for, oldest first."""
    next: float | None
    """When the schedule is due next."""


def catch_up(timetable: Timetable, due: float, now: float, missed: Missed, most: int = 100) -> Catch:
    """Decide on a schedule that is due since `due`.

    `skip` fires for the latest due time unless that was missed too, `run_once` for the latest in any case,
    and `run_all` for the latest `most` of them.
    """
    firings = _latest(timetable, due, now, most if missed == "run_all" else 1)
    if missed == "skip" and now - firings[-1] > _ON_TIME:
        firings = []
    return Catch(firings, timetable.after(now))


def _latest(timetable: Timetable, due: float, now: float, most: int) -> list[float]:
    """The latest `most` due times from `due` to `now`, without a walk through years of absence."""
    span = _ON_TIME
    while True:
        start = max(due, now - span)
        found = deque(takewhile(lambda moment: moment <= now, _from(timetable, due, start)), most)
        if len(found) == most or start == due:
            return list(found)
        span *= 4


def _from(timetable: Timetable, due: float, start: float) -> Iterator[float]:
    if start == due:
        yield due
    yield from dues(timetable, start)
