"""The dateTime nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.errors import DefinitionError, NodeError
from rune.core.node import NodeType
from rune.nodes.date_time import DateTimeAdd, DateTimeFormat, DateTimeNow, DateTimeParse, DateTimeSubtract
from tests.nodes.fakes import FakeContext, made, output


async def test_now() -> None:
    assert await output(DateTimeNow) == {
        "result": "2026-01-01T00:00:00.250000Z",
        "iso": "2026-01-01T00:00:00.250000Z",
        "unix": 1767225600,
        "timezone": "UTC",
    }
    berlin = await output(DateTimeNow, timezone="Europe/Berlin", format="DD.MM.YYYY HH:mm")
    assert berlin["result"] == "01.01.2026 01:00"
    assert berlin["iso"] == "2026-01-01T01:00:00.250000+01:00"
    assert berlin["unix"] == 1767225600


@pytest.mark.parametrize(
    ("date", "amount", "unit", "result"),
    [
        ("2026-01-31", 1, "months", "2026-02-28T00:00:00Z"),
        ("2024-01-31", 1, "month", "2024-02-29T00:00:00Z"),
        ("2024-02-29", 1, "years", "2025-02-28T00:00:00Z"),
        ("2024-02-29", 4, "years", "2028-02-29T00:00:00Z"),
        ("2026-11-30", 1, "quarters", "2027-02-28T00:00:00Z"),
        ("2026-01-01", "1.5", "hours", "2026-01-01T01:30:00Z"),
        ("2026-01-01", 2, "weeks", "2026-01-15T00:00:00Z"),
        ("2026-01-01", -1, "days", "2025-12-31T00:00:00Z"),
        ("2026-01-01T10:00:00+02:00", 30, "seconds", "2026-01-01T08:00:30Z"),
        (1767225600, 1, "minutes", "2026-01-01T00:01:00Z"),
        ("1767225600000", 1, "minutes", "2026-01-01T00:01:00Z"),
        ("Thu, 01 Jan 2026 00:00:00 +0000", 1, "day", "2026-01-02T00:00:00Z"),
        ("20260101", 1, "day", "2026-01-02T00:00:00Z"),
    ],
)
async def test_add(date: Any, amount: Any, unit: str, result: str) -> None:
    added = await output(DateTimeAdd, date=date, amount=amount, unit=unit)
    assert added["result"] == result


async def test_days_are_the_calendars_and_hours_the_clocks() -> None:
    # Berlin's clocks go forward in the night to 29 March 2026.
    start = {"date": "2026-03-28T12:00:00", "timezone": "Europe/Berlin"}
    assert (await output(DateTimeAdd, **start, amount=1, unit="days"))["iso"] == "2026-03-29T12:00:00+02:00"
    assert (await output(DateTimeAdd, **start, amount=24, unit="hours"))["iso"] == "2026-03-29T13:00:00+02:00"
    night = {"date": "2026-03-28T02:30:00", "timezone": "Europe/Berlin"}
    assert (await output(DateTimeAdd, **night, amount=1, unit="days"))["iso"] == "2026-03-29T03:30:00+02:00"


async def test_subtract() -> None:
    assert (await output(DateTimeSubtract, date="2026-03-31", amount=1, unit="months"))[
        "iso"
    ] == "2026-02-28T00:00:00Z"
    assert (await output(DateTimeSubtract, date="2026-01-01", amount=1))["iso"] == "2025-12-31T00:00:00Z"


@pytest.mark.parametrize(
    ("format", "result"),
    [
        ("YYYY-MM-DD", "2026-03-05"),
        ("YYYY-MM-DDTHH:mm:ssZ", "2026-03-05T07:08:09+00:00"),
        ("D.M.YY H:m:s", "5.3.26 7:8:9"),
        ("dddd, D MMMM YYYY", "Thursday, 5 March 2026"),
        ("ddd MMM DD hh:mm A", "Thu Mar 05 07:08 AM"),
        ("HH:mm:ss.SSS", "07:08:09.120"),
        ("[Today is] dddd", "Today is Thursday"),
        ("%Y/%m/%d %H:%M:%S", "2026/03/05 07:08:09"),
        ("%-d.%-m.%Y 100%%", "5.3.2026 100%"),
        ("2006-01-02 15:04:05", "2026-03-05 07:08:09"),
        ("2006-01-02T15:04:05Z07:00", "2026-03-05T07:08:09Z"),
        ("Mon, 02 Jan 2006 15:04:05 -0700", "Thu, 05 Mar 2026 07:08:09 +0000"),
        ("", "2026-03-05T07:08:09.120000Z"),
    ],
)
async def test_format(format: str, result: str) -> None:
    assert (await output(DateTimeFormat, date="2026-03-05T07:08:09.12Z", format=format))["result"] == result


async def test_format_in_a_zone() -> None:
    result = await output(
        DateTimeFormat, date="2026-07-01T00:00:00Z", format="YYYY-MM-DD HH:mm ZZ", timezone="Asia/Tokyo"
    )
    assert result["result"] == "2026-07-01 09:00 +0900"
    assert (await output(DateTimeFormat, date="2026-07-01", timezone="-05:30"))[
        "iso"
    ] == "2026-07-01T00:00:00-05:30"


async def test_parse_gives_parts() -> None:
    assert await output(DateTimeParse, date="2026-07-01T10:20:30.5+02:00", timezone="Europe/Berlin") == {
        "result": "2026-07-01T10:20:30.500000+02:00",
        "iso": "2026-07-01T10:20:30.500000+02:00",
        "unix": 1782894030,
        "timezone": "Europe/Berlin",
        "year": 2026,
        "month": 7,
        "day": 1,
        "hour": 10,
        "minute": 20,
        "second": 30,
        "millisecond": 500,
        "weekday": "Wednesday",
        "day_of_year": 182,
        "week": 27,
    }


@pytest.mark.parametrize(
    ("date", "format"),
    [
        ("05.03.2026 07:08", "DD.MM.YYYY HH:mm"),
        ("5 March 2026, 7:08 am", "D MMMM YYYY, h:mm a"),
        ("05/03/2026 07:08", "%d/%m/%Y %H:%M"),
        ("Mar 05 2026 07:08", "Jan 02 2006 15:04"),
        ("2026-03-05T07:08+00:00", "YYYY-MM-DDTHH:mmZ"),
    ],
)
async def test_parse_in_a_format(date: str, format: str) -> None:
    assert (await output(DateTimeParse, date=date, format=format))["iso"] == "2026-03-05T07:08:00Z"


@given(st.datetimes())
async def test_what_is_written_is_read_again(moment: Any) -> None:
    text = moment.isoformat()
    parsed = await output(DateTimeParse, date=text)
    assert parsed["iso"] == f"{text}Z"
    again = await output(DateTimeParse, date=parsed["iso"], format=None)
    assert again == parsed


@pytest.mark.parametrize(
    ("type", "parameters", "code"),
    [
        (DateTimeParse, {"date": "soon"}, "TIME_INVALID"),
        (DateTimeParse, {"date": ""}, "TIME_INVALID"),
        (DateTimeParse, {"date": None}, "TIME_INVALID"),
        (DateTimeParse, {"date": True}, "TIME_INVALID"),
        (DateTimeParse, {"date": [1]}, "TIME_INVALID"),
        (DateTimeParse, {"date": 1e30}, "TIME_INVALID"),
        (DateTimeParse, {"date": "2026-13-01", "format": "YYYY-MM-DD"}, "TIME_INVALID"),
        (DateTimeParse, {"date": "2026", "format": "???"}, "FORMAT_UNKNOWN"),
        (DateTimeFormat, {"date": 0, "format": "%Q"}, "FORMAT_UNKNOWN"),
        (DateTimeFormat, {"date": 0, "format": "%Y%"}, "FORMAT_UNKNOWN"),
        (DateTimeNow, {"timezone": "Mars/Base"}, "TIMEZONE_UNKNOWN"),
        (DateTimeNow, {"timezone": "../etc/passwd"}, "TIMEZONE_UNKNOWN"),
        (DateTimeNow, {"timezone": "America"}, "TIMEZONE_UNKNOWN"),
        (DateTimeNow, {"timezone": "+99:00"}, "TIMEZONE_UNKNOWN"),
        (DateTimeAdd, {"date": 0, "amount": 1.5, "unit": "months"}, "TIME_AMOUNT"),
        (DateTimeAdd, {"date": 0, "amount": 1e9, "unit": "years"}, "TIME_RANGE"),
        (DateTimeAdd, {"date": 0, "amount": 1e300, "unit": "days"}, "TIME_RANGE"),
        (DateTimeAdd, {"date": 0, "amount": "inf", "unit": "months"}, "TIME_RANGE"),
        (DateTimeSubtract, {"date": "0001-01-01", "amount": 1}, "TIME_RANGE"),
        (DateTimeFormat, {"date": "0001-01-01T00:00:00", "timezone": "+05:00"}, "TIME_RANGE"),
    ],
)
async def test_failures(type: type[NodeType], parameters: dict[str, Any], code: str) -> None:
    with pytest.raises(NodeError) as caught:
        await output(type, **parameters)
    assert caught.value.code == code


async def test_mistyped_zone_is_suggested() -> None:
    with pytest.raises(NodeError, match="did you mean 'Europe/Berlin'"):
        await output(DateTimeNow, timezone="Europe/Berlni")


@pytest.mark.parametrize(
    "parameters", [{"date": 0}, {"amount": 1}, {"date": 0, "amount": 1, "unit": "moons"}]
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        made(DateTimeAdd, FakeContext(), parameters)
