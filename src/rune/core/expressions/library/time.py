"""Functions of dates and times; a time is an ISO 8601 text or a number of seconds since 1970."""

from __future__ import annotations

from rune.core.expressions.errors import ExpressionTypeError
from rune.core.expressions.library.arguments import choice, number, text
from rune.core.expressions.library.registry import function
from rune.core.expressions.values import is_number, kind_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, tzinfo
    from typing import Any

    from rune.core.expressions.limits import Budget

__all__: list[str] = []

_STEPS = 25  # what one call is worth
_LONGEST_FORMAT = 100
_DIRECTIVES = frozenset("YmdHMSfzZaAbBjpIyUWVGu%")
_MILLISECONDS_FROM = 10**11  # as seconds, the year 5138; numbers from here on are milliseconds
_UNITS = {
    "milliseconds": 0.001,
    "seconds": 1,
    "minutes": 60,
    "hours": 3600,
    "days": 86400,
    "weeks": 604800,
}
_UNITS |= {name[:-1]: seconds for name, seconds in _UNITS.items()} | {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
}


@function(deterministic=False)
def now(budget: Budget, format: Any = None, timezone: Any = "UTC") -> str:
    """The present time, as 2026-01-31T12:00:00.000Z or in a format."""
    from datetime import UTC, datetime

    budget.spend(_STEPS)
    return _written(datetime.now(UTC), format, timezone, "now")


@function()
def date(budget: Budget, value: Any, format: Any = None, timezone: Any = "UTC", parse: Any = None) -> str:
    """A time in a time zone, as ISO 8601 or in a format such as '%d.%m.%Y'; `parse` is the format it has."""
    budget.spend(_STEPS)
    return _written(_moment(value, "date", timezone, parse), format, timezone, "date")


@function()
def timestamp(budget: Budget, value: Any, unit: Any = "seconds") -> int:
    """A time as whole seconds, or milliseconds, since 1970."""
    budget.spend(_STEPS)
    seconds = choice(unit, "timestamp", _UNITS)
    return int(_milliseconds(_moment(value, "timestamp")) // (seconds * 1000))


@function()
def datediff(budget: Budget, start: Any, end: Any, unit: Any = "seconds") -> Any:
    """How long it is from one time to another; negative if the second comes first."""
    budget.spend(_STEPS)
    seconds = choice(unit, "datediff", _UNITS)
    passed = _milliseconds(_moment(end, "datediff")) - _milliseconds(_moment(start, "datediff"))
    found = passed / (seconds * 1000)
    return int(found) if found.is_integer() else found


@function()
def dateadd(budget: Budget, value: Any, amount: Any, unit: Any = "seconds") -> str:
    """A time so much later, or earlier if the amount is negative."""
    from datetime import timedelta

    budget.spend(_STEPS)
    seconds = choice(unit, "dateadd", _UNITS)
    try:
        moment = _moment(value, "dateadd") + timedelta(seconds=number(amount, "dateadd") * seconds)
    except OverflowError:
        raise _unfit("dateadd", "leads out of the calendar") from None
    return _written(moment, None, "UTC", "dateadd")


def _unfit(caller: str, why: str, hint: str | None = None) -> ExpressionTypeError:
    return ExpressionTypeError(f"`{caller}` {why}", hint=hint)


def _milliseconds(moment: datetime) -> int:
    return (
        int(moment.timestamp() * 1000 // 1) if moment.microsecond % 1000 else round(moment.timestamp() * 1000)
    )


def _moment(value: Any, caller: str, timezone: Any = "UTC", parse: Any = None) -> datetime:
    """Return the time that a value means; one that names no zone is in the given one."""
    from datetime import UTC, datetime

    if parse is None and is_number(value):
        try:
            return datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS_FROM else value, UTC)
        except (OverflowError, ValueError, OSError):
            raise _unfit(caller, "leads out of the calendar") from None
    if type(value) is not str:
        raise _unfit(caller, f"needs a time as text or number, not {kind_of(value)}")
    moment = _read(value.strip(), caller, parse)
    return moment if moment.tzinfo else moment.replace(tzinfo=_zone(timezone, caller))


def _read(written: str, caller: str, parse: Any) -> datetime:
    import re
    from datetime import datetime

    if len(written) > _LONGEST_FORMAT:
        raise _unfit(caller, "needs a time, which is not that long")
    try:
        if parse is None:
            return datetime.fromisoformat(written)
        return datetime.strptime(written, _format(parse, caller))  # noqa: DTZ007
    except (ValueError, OverflowError, re.error):
        wanted = "an ISO 8601 time" if parse is None else f"a time in the format {parse!r}"
        raise _unfit(caller, f"does not find {wanted} in {written!r}") from None


def _format(format: Any, caller: str) -> str:
    """Return a format whose every directive means the same on all systems."""
    found = text(format, caller)
    if len(found) > _LONGEST_FORMAT:
        raise _unfit(caller, f"needs a format of at most {_LONGEST_FORMAT} characters")
    for piece in found.replace("%%", "").split("%")[1:]:
        if piece[:1] not in _DIRECTIVES or not piece:
            raise _unfit(
                caller, f"does not know '%{piece[:1]}'", "use %Y %m %d %H %M %S %f %z %Z %a %b %j %p %I …"
            )
    return found


def _zone(timezone: Any, caller: str) -> tzinfo:
    from datetime import UTC, datetime

    name = text(timezone, caller)
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        if name[:1] in ("+", "-"):
            offset = datetime.fromisoformat(f"2000-01-01T00:00{name}").tzinfo
            if offset is not None:
                return offset
        from zoneinfo import ZoneInfo

        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise _unfit(
            caller, f"does not know the time zone {name[:40]!r}", "as in 'Europe/Berlin' or '+02:00'"
        ) from None


def _written(moment: datetime, format: Any, timezone: Any, caller: str) -> str:
    from datetime import UTC

    try:
        local = moment.astimezone(_zone(timezone, caller))
    except (OverflowError, ValueError):
        raise _unfit(caller, "leads out of the calendar") from None
    if format is None:
        iso = local.isoformat(timespec="milliseconds")
        return iso.removesuffix("+00:00") + "Z" if local.tzinfo is UTC else iso
    return "".join(_pieces(local, _format(format, caller)))


def _pieces(moment: datetime, format: str) -> list[str]:
    """Return the parts of a formatted time, directive by directive: the rest is text, whatever it is."""
    pieces, position = [], 0
    while position < len(format):
        if format[position] == "%":
            pieces.append(moment.strftime(format[position : position + 2]))
            position += 2
        else:
            pieces.append(format[position])
            position += 1
    return pieces
