"""The dateTime nodes: now, add, subtract, format, parse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.nodes._time import SECONDS, iso, parse_time, zone

__all__ = ["DateTimeAdd", "DateTimeFormat", "DateTimeNow", "DateTimeParse", "DateTimeSubtract"]

_FORMAT = (
    "How to write the result: `YYYY-MM-DD HH:mm`, `%Y-%m-%d` or Go's `2006-01-02`; without it, ISO 8601."
)
_DATE = "A time as ISO 8601, RFC 2822 or seconds since 1970, such as `{{ now() }}`."

Zone = Annotated[str, Meta(description="Time zone of the result, and of times that name none.")]
Format = Annotated[str | None, Meta(description=_FORMAT)]
Date = Annotated[Any, Meta(description=_DATE)]
Unit = Literal[
    "seconds", "second", "minutes", "minute", "hours", "hour", "days", "day",
    "weeks", "week", "months", "month", "quarters", "quarter", "years", "year",
]  # fmt: skip
_MONTHS = {"months": 1, "quarters": 3, "years": 12}


class DateTimeNow(NodeType, kw_only=True):
    """Give the present time."""

    name: ClassVar = "dateTimeNow"
    effects: ClassVar = False
    trusted: ClassVar = True

    timezone: Zone = "UTC"
    format: Format = None

    async def run(self, context: StepContext) -> Outcome:
        return _result(datetime.fromtimestamp(context.now(), UTC), self.timezone, self.format)


class DateTimeAdd(NodeType, kw_only=True):
    """Add to a time; months and years keep the day, or the last one of a shorter month."""

    name: ClassVar = "dateTimeAdd"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    date: Date
    amount: Annotated[float, Meta(description="How many units; whole ones of months and years.")]
    unit: Annotated[Unit, Meta(description="Unit of the amount.")] = "days"
    timezone: Zone = "UTC"
    format: Format = None

    async def run(self, context: StepContext) -> Outcome:
        return _result(self._moved(self.amount), self.timezone, self.format)

    def _moved(self, amount: float) -> datetime:
        home = zone(self.timezone)
        try:
            return _added(
                parse_time(self.date, home).astimezone(home), amount, f"{self.unit.removesuffix('s')}s"
            )
        except (OverflowError, ValueError):
            raise NodeError(
                f"{self.date!r:.80} and {amount:g} {self.unit} is not between the years 1 and 9999",
                "TIME_RANGE",
            ) from None


class DateTimeSubtract(DateTimeAdd, kw_only=True):
    """Subtract from a time; months and years keep the day, or the last one of a shorter month."""

    name: ClassVar = "dateTimeSubtract"

    async def run(self, context: StepContext) -> Outcome:
        return _result(self._moved(-self.amount), self.timezone, self.format)


class DateTimeFormat(NodeType, kw_only=True):
    """Write a time in another format or zone."""

    name: ClassVar = "dateTimeFormat"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    date: Date
    format: Format = None
    timezone: Zone = "UTC"

    async def run(self, context: StepContext) -> Outcome:
        return _result(parse_time(self.date, zone(self.timezone)), self.timezone, self.format)


class DateTimeParse(NodeType, kw_only=True):
    """Read a time, and give its parts."""

    name: ClassVar = "dateTimeParse"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True

    date: Date
    format: Annotated[str | None, Meta(description="How the time is written; without it, any known way.")] = (
        None
    )
    timezone: Zone = "UTC"

    async def run(self, context: StepContext) -> Outcome:
        from rune.nodes._formats import parse_as

        home = zone(self.timezone)
        moment = parse_as(str(self.date), self.format, home) if self.format else parse_time(self.date, home)
        moment = _in_zone(moment, home)
        parts = {
            "year": moment.year,
            "month": moment.month,
            "day": moment.day,
            "hour": moment.hour,
            "minute": moment.minute,
            "second": moment.second,
            "millisecond": moment.microsecond // 1000,
            "weekday": moment.strftime("%A"),
            "day_of_year": moment.timetuple().tm_yday,
            "week": moment.isocalendar().week,
        }
        return Done({**_facts(moment, self.timezone, None), **parts})


def _result(moment: datetime, timezone: str, format: str | None) -> Done:
    return Done(_facts(_in_zone(moment, zone(timezone)), timezone, format))


def _facts(moment: datetime, timezone: str, format: str | None) -> dict[str, Any]:
    from rune.nodes._formats import write_as

    text = iso(moment)
    return {
        "result": write_as(moment, format) if format else text,
        "iso": text,
        "unix": int(moment.timestamp() // 1),
        "timezone": timezone,
    }


def _in_zone(moment: datetime, home: tzinfo) -> datetime:
    try:
        return moment.astimezone(home)
    except OverflowError:
        raise NodeError(
            f"{iso(moment)} is not between the years 1 and 9999 in that zone", "TIME_RANGE"
        ) from None


def _added(moment: datetime, amount: float, unit: str) -> datetime:
    """Add hours as they pass, and days and longer units as the calendar of the moment's zone has them."""
    if unit in _MONTHS:
        if amount != int(amount):
            raise NodeError(f"{amount:g} {unit}: only whole ones can be added", "TIME_AMOUNT")
        return _settled(_months_later(moment, int(amount) * _MONTHS[unit]))
    distance = timedelta(seconds=amount * SECONDS[unit])
    if unit in ("days", "weeks"):
        return _settled(moment + distance)
    return (moment.astimezone(UTC) + distance).astimezone(moment.tzinfo)


def _months_later(moment: datetime, months: int) -> datetime:
    from calendar import monthrange

    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    day = min(moment.day, monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


def _settled(moment: datetime) -> datetime:
    """A wall-clock time that its zone skips becomes the one an hour later."""
    return moment.astimezone(UTC).astimezone(moment.tzinfo)
