"""Times as nodes read and write them: ISO 8601 text, zones, calendar units."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any

from rune.core.errors import NodeError
from rune.core.expressions import suggest

__all__ = ["SECONDS", "iso", "iso_at", "parse_time", "zone"]

SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
"""Units of a fixed length; each is also known by its singular."""
_MILLISECONDS_FROM = 1e11
"""Larger Unix times (from the year 5138 on) are taken for milliseconds."""


def iso(moment: datetime) -> str:
    """A moment as ISO 8601 writes it, UTC as `Z`."""
    text = moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") and moment.tzinfo is UTC else text


def iso_at(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(round(seconds, 3), UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """The zone of a name such as `Europe/Berlin`, `UTC` or `+02:00`."""
    if name.strip().upper() in ("", "UTC", "Z", "GMT"):
        return UTC
    if name[0] in "+-":
        return _offset(name)
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        meant = suggest(name, sorted(zoneinfo.available_timezones()))
        hint = f"did you mean {meant!r}?" if meant else "zones are called `Europe/Berlin`, `UTC` or `+02:00`"
        raise NodeError(f"there is no time zone {name!r}; {hint}", "TIMEZONE_UNKNOWN") from None


def _offset(text: str) -> tzinfo:
    digits = text[1:].replace(":", "")
    if (
        not digits.isdecimal()
        or len(digits) not in (2, 4)
        or int(digits[:2]) > 23
        or int(digits[2:] or 0) > 59
    ):
        raise NodeError(f"{text!r} is not an offset from UTC such as `+02:00`", "TIMEZONE_UNKNOWN")
    distance = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-distance if text[0] == "-" else distance)


def parse_time(value: Any, home: tzinfo = UTC) -> datetime:
    """The moment that ISO 8601, RFC 2822 or a Unix time names; without a zone of its own it is in `home`."""
    moment = _unix(value) if _is_number(value) else _written(value) if isinstance(value, str) else None
    if moment is None:
        raise NodeError(
            f"{value!r:.80} is not a time; write it as ISO 8601, such as `2026-01-31T09:00:00Z`, "
            "or as seconds since 1970",
            "TIME_INVALID",
        )
    if moment.tzinfo:
        return moment
    try:
        # A time that its zone skips becomes the one that the clocks then showed.
        return moment.replace(tzinfo=home).astimezone(UTC).astimezone(home)
    except OverflowError:
        raise NodeError(f"{value!r:.80} is not between the years 1 and 9999 in UTC", "TIME_RANGE") from None


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        text = value.strip().removeprefix("-")
        return text.replace(".", "", 1).isdecimal() and len(text) != 8  # eight digits are a date
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unix(value: Any) -> datetime | None:
    try:
        seconds = float(value)
        return datetime.fromtimestamp(seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _written(text: str) -> datetime | None:
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _mail_time(text)
    return moment.astimezone(UTC) if moment.utcoffset() == timedelta(0) else moment


def _mail_time(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
