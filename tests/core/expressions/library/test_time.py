"""Functions of dates and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rune.core.expressions import ExpressionTypeError
from tests.core.expressions.scopes import evaluate, same


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("date('2026-01-31T12:00:00Z')", "2026-01-31T12:00:00.000Z"),
        ("date('2026-01-31')", "2026-01-31T00:00:00.000Z"),
        ("date('2026-01-31T12:00:00.123456+02:00')", "2026-01-31T10:00:00.123Z"),
        ("date(0)", "1970-01-01T00:00:00.000Z"),
        ("date(1769860800.5)", "2026-01-31T12:00:00.500Z"),
        ("date(1769860800500)", "2026-01-31T12:00:00.500Z"),
        ("date('2026-01-31T12:00:00Z', timezone='Europe/Berlin')", "2026-01-31T13:00:00.000+01:00"),
        ("date('2026-07-31T12:00:00', timezone='Europe/Berlin')", "2026-07-31T12:00:00.000+02:00"),
        ("date('2026-01-31T12:00:00Z', timezone='-05:30')", "2026-01-31T06:30:00.000-05:30"),
        ("date('2026-01-31T12:00:00Z', '%d.%m.%Y %H:%M 100%% é')", "31.01.2026 12:00 100% é"),
        ("date('2026-01-31T12:00:00Z', format='%A %j %p %I', timezone='utc')", "Saturday 031 PM 12"),
        ("date('31/01/2026 08:15', parse='%d/%m/%Y %H:%M')", "2026-01-31T08:15:00.000Z"),
        ("date('20260131', '%Y', parse='%Y%m%d')", "2026"),
        ("timestamp('2026-01-31T12:00:00.999Z')", 1769860800),
        ("timestamp('2026-01-31T12:00:00.999Z', 'ms')", 1769860800999),
        ("timestamp('1969-12-31T23:59:59.500Z')", -1),
        ("timestamp('1970-01-03', 'days')", 2),
        ("datediff('2026-01-01', '2026-01-31', 'days')", 30),
        ("datediff('2026-01-01T00:00:00Z', '2026-01-01T01:30:00Z', 'hours')", 1.5),
        ("datediff('2026-01-31', '2026-01-30')", -86400),
        ("datediff('2026-01-01T00:00:00Z', '2026-01-01T01:00:00+01:00', 'minutes')", 0),
        ("datediff(0, 0.25, 'ms')", 250),
        ("dateadd('2026-01-31T12:00:00Z', 1, 'day')", "2026-02-01T12:00:00.000Z"),
        ("dateadd('2026-01-31T12:00:00Z', -1.5, 'hours')", "2026-01-31T10:30:00.000Z"),
        ("dateadd('2026-01-31T12:00:00Z', 10)", "2026-01-31T12:00:10.000Z"),
    ],
)
def test_gives(source: str, expected: Any) -> None:
    assert same(evaluate(source), expected), evaluate(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("date('soon')", "`date` does not find an ISO 8601 time in 'soon'"),
        ("date('soon', parse='%Y')", "`date` does not find a time in the format '%Y' in 'soon'"),
        ("date('01 01', parse='%m %m')", "`date` does not find a time in the format '%m %m' in '01 01'"),
        ("date([])", "`date` needs a time as text or number, not array"),
        ("date('x' * 200)", "`date` needs a time, which is not that long"),
        ("date(1e300)", "`date` leads out of the calendar"),
        ("date('0001-01-01', timezone='+01:00', format='%Y')", "`date` leads out of the calendar"),
        ("date(0, '%q')", "`date` does not know '%q'; use %Y %m %d %H %M %S %f %z %Z %a %b %j %p %I …"),
        ("date(0, '%')", "`date` does not know '%'; use %Y %m %d %H %M %S %f %z %Z %a %b %j %p %I …"),
        (
            "date(0, '%9999999d')",
            "`date` does not know '%9'; use %Y %m %d %H %M %S %f %z %Z %a %b %j %p %I …",
        ),
        ("date(0, 'x' * 101)", "`date` needs a format of at most 100 characters"),
        ("date(0, 1)", "`date` needs a string, not number"),
        (
            "date(0, timezone='Mars/Base')",
            "`date` does not know the time zone 'Mars/Base'; as in 'Europe/Berlin' or '+02:00'",
        ),
        (
            "date(0, timezone='America')",
            "`date` does not know the time zone 'America'; as in 'Europe/Berlin' or '+02:00'",
        ),
        (
            "date(0, timezone='../../etc/passwd')",
            "`date` does not know the time zone '../../etc/passwd'; as in 'Europe/Berlin' or '+02:00'",
        ),
        ("date(0, timezone=1)", "`date` needs a string, not number"),
        (
            "datediff(0, 1, 'years')",
            "`datediff` does not know 'years'; one of milliseconds, seconds, minutes, hours, days, weeks, "
            "millisecond, second, minute, hour, day, week, ms, s, m, h, d, w",
        ),
        ("dateadd(0, '1')", "`dateadd` needs a number, not string"),
        ("dateadd(0, 1e300)", "`dateadd` leads out of the calendar"),
        ("timestamp(null)", "`timestamp` needs a time as text or number, not null"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    with pytest.raises(ExpressionTypeError) as caught:
        evaluate(source)
    assert str(caught.value) == message


def test_now_is_the_present_in_utc_with_milliseconds() -> None:
    text = evaluate("now()")
    assert len(text) == len("2026-01-31T12:00:00.000Z")
    assert text.endswith("Z")
    assert abs(datetime.fromisoformat(text) - datetime.now(UTC)) < timedelta(minutes=1)
    assert evaluate("now('%z', 'Asia/Tokyo')") == "+0900"
