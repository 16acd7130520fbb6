"""When a schedule is due: by a cron line in a time zone, or at a regular interval from an anchor."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

__all__ = ["LATEST", "Cron", "Interval", "Timetable", "TimetableError", "dues"]

LATEST = 253_402_300_799.0
"""The last second of the year 9999, beyond which times cannot be written."""
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class TimetableError(ValueError):
    """A schedule that cannot be kept."""


class Timetable(Protocol):
    """The times at which something is due; they follow from the schedule alone, never from the present."""

    @abstractmethod
    def after(self, moment: float) -> float | None:
        """The first due time later than this one, in seconds since the epoch; None if there is none."""

    @abstractmethod
    def explain(self) -> str:
        """The schedule in words."""


def dues(timetable: Timetable, after: float) -> Iterator[float]:
    """The due times later than `after`, one after another."""
    due = timetable.after(after)
    while due is not None:
        yield due
        due = timetable.after(due)


class Cron(Timetable):
    """Five fields of cron, or six with the seconds first, by the clocks of a time zone.

    Where the clocks go forward, what is due at a fixed time in the gap is due right after it; where they go
    back, it is due the first time only. What is due every so many minutes or hours simply goes on.
    """

    def __init__(self, line: str, zone: tzinfo = UTC) -> None:
        self.line = _NAMED.get(line.strip().lower(), line.strip())
        self.zone = zone
        try:
            first = next(CronSim(self.line, datetime(2024, 1, 1, tzinfo=UTC)), None)
        except (CronSimError, OverflowError, ValueError) as error:
            raise TimetableError(_trouble(line, error)) from None
        if first is None:
            raise TimetableError(f"{line!r} is never due: no day is like that")

    def after(self, moment: float) -> float | None:
        times = CronSim(self.line, datetime.fromtimestamp(moment, UTC).astimezone(self.zone))
        try:
            for time in times:
                due = time.timestamp()
                # By the clocks on the wall, an hour that comes twice leads back into the past.
                if due > moment:
                    return due
        except OverflowError:
            pass
        return None

    def explain(self) -> str:
        words = CronSim(self.line, datetime(2024, 1, 1, tzinfo=UTC)).explain()
        return f"{words} ({self.zone.key if isinstance(self.zone, ZoneInfo) else self.zone})"


class Interval(Timetable):
    """Every so many seconds, counted from an anchor."""

    def __init__(self, seconds: float, anchor: float) -> None:
        if not 1 <= seconds <= 10 * 366 * 86_400:
            raise TimetableError("an interval lies between one second and ten years")
        self.seconds = seconds
        self.anchor = anchor

    def after(self, moment: float) -> float | None:
        number = max(0, math.floor((moment - self.anchor) / self.seconds) + 1)
        due = self._due(number)
        # The division may be off by one in its last digit.
        while due <= moment:
            number += 1
            due = self._due(number)
        return due if due <= LATEST else None

    def _due(self, number: int) -> float:
        return round(self.anchor + number * self.seconds, 3)

    def explain(self) -> str:
        for name, size in (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
            count = self.seconds / size
            if count == int(count):
                return f"Every {name}" if count == 1 else f"Every {int(count)} {name}s"
        return f"Every {self.seconds:g} seconds"


def _trouble(line: str, error: Exception) -> str:
    what = str(error)
    if what == "Wrong number of fields":
        return f"{line!r} is not a cron line: it has five fields, such as `0 9 * * 1-5`"
    return f"{line!r} is not a cron line: its {what.removeprefix('Bad ')} makes no sense"
