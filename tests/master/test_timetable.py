"""Due times follow from the schedule alone, also where the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.master.triggers.missing import catch_up
from rune.master.triggers.timetable import Cron, Interval, Timetable, TimetableError, dues

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def first(timetable: Timetable, after: str, count: int) -> list[str]:
    return [
        datetime.fromtimestamp(due, UTC).isoformat()[:16] for due in islice(dues(timetable, at(after)), count)
    ]


def test_a_cron_line_is_read_by_the_clocks_of_its_zone() -> None:
    nine = Cron("0 9 * * 1-5", BERLIN)
    # Friday; the clocks go forward on Sunday, so that nine is an hour earlier on Monday.
    assert first(nine, "2026-03-27T00:00", 3) == ["2026-03-27T08:00", "2026-03-30T07:00", "2026-03-31T07:00"]
    assert nine.explain() == "At 09:00 on Monday through Friday (Europe/Berlin)"


def test_a_time_that_the_clocks_skip_is_due_right_after_the_gap() -> None:
    # On 29 March 2026, Berlin's clocks go from 01:59 to 03:00, which is 01:00 in UTC.
    half_past_two = Cron("30 2 * * *", BERLIN)
    assert first(half_past_two, "2026-03-28T00:00", 3) == [
        "2026-03-28T01:30",
        "2026-03-29T01:00",
        "2026-03-30T00:30",
    ]


def test_two_times_in_one_gap_are_due_once() -> None:
    assert first(Cron("15,45 2 * * *", BERLIN), "2026-03-28T12:00", 2) == [
        "2026-03-29T01:00",
        "2026-03-30T00:15",
    ]


def test_a_time_that_comes_twice_is_due_the_first_time() -> None:
    # On 25 October 2026, 02:00 to 02:59 comes twice in Berlin: from 00:00 and from 01:00 in UTC.
    half_past_two = Cron("30 2 * * *", BERLIN)
    assert first(half_past_two, "2026-10-24T12:00", 2) == ["2026-10-25T00:30", "2026-10-26T01:30"]
    # Asked within the second hour, it does not lead back into the first.
    assert first(half_past_two, "2026-10-25T01:10", 1) == ["2026-10-26T01:30"]


def test_what_is_due_every_quarter_goes_on_through_both_hours() -> None:
    quarters = Cron("*/15 * * * *", BERLIN)
    through = list(islice(dues(quarters, at("2026-10-24T23:45")), 12))
    assert {later - earlier for earlier, later in pairwise(through)} == {900.0}
    through = list(islice(dues(quarters, at("2026-03-29T00:30")), 8))
    assert {later - earlier for earlier, later in pairwise(through)} == {900.0}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("* * *", "five fields"),
        ("61 * * * *", "its minute makes no sense"),
        ("0 0 * * MOO", "its day-of-week makes no sense"),
        ("0 0 30 2 *", "day-of-month"),
        ("", "five fields"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(line: str, says: str) -> None:
    with pytest.raises(TimetableError, match=says):
        Cron(line)


def test_names_stand_for_lines() -> None:
    assert first(Cron("@daily"), "2026-01-01T10:00", 1) == ["2026-01-02T00:00"]


def test_an_interval_counts_from_its_anchor() -> None:
    anchor = at("2026-01-01T00:00")
    assert first(Interval(90 * 60, anchor), "2026-01-01T04:00", 2) == ["2026-01-01T04:30", "2026-01-01T06:00"]
    assert first(Interval(60, anchor), "2025-12-01T00:00", 1) == ["2026-01-01T00:00"]
    assert Interval(90 * 60, anchor).explain() == "Every 90 minutes"
    assert Interval(86400, anchor).explain() == "Every day"
    with pytest.raises(TimetableError):
        Interval(0.1, anchor)


@given(
    st.floats(1, 1e6), st.floats(0, 4e9), st.floats(0, 4e9), st.sampled_from(["*/7 * * * *", "30 2 * * *"])
)
def test_due_times_only_ever_go_forward(seconds: float, anchor: float, moment: float, line: str) -> None:
    for timetable in (Interval(seconds, anchor), Cron(line, BERLIN)):
        due = timetable.after(moment)
        assert due is not None
        assert due > moment
        following = timetable.after(due)
        assert following is not None
        assert following > due
        # Whoever asks in between gets the same answer.
        assert timetable.after((moment + due) / 2) == due or (moment + due) / 2 >= due


# --- missed ---

HOURLY = Cron("0 * * * *")


def hour(number: float) -> float:
    return at("2026-01-01T00:00") + number * 3600


def test_a_due_time_that_is_met_is_fired_by_every_policy() -> None:
    for missed in ("skip", "run_once", "run_all"):
        assert catch_up(HOURLY, hour(1), hour(1) + 2, missed) == ([hour(1)], hour(2))  # type: ignore[arg-type]


def test_missed_times_are_skipped_run_once_or_all_run() -> None:
    now = hour(5.5)
    assert catch_up(HOURLY, hour(1), now, "skip") == ([], hour(6))
    assert catch_up(HOURLY, hour(1), now, "run_once") == ([hour(5)], hour(6))
    assert catch_up(HOURLY, hour(1), now, "run_all") == ([hour(n) for n in range(1, 6)], hour(6))
    assert catch_up(HOURLY, hour(1), now, "run_all", 2).firings == [hour(4), hour(5)]


def test_of_missed_times_and_one_that_is_met_skip_fires_the_one() -> None:
    assert catch_up(HOURLY, hour(1), hour(5) + 1, "skip") == ([hour(5)], hour(6))


def test_years_of_absence_do_not_take_long() -> None:
    each_second = Cron("* * * * * *")
    now = hour(24 * 365 * 10)
    assert catch_up(each_second, hour(0), now, "run_all", 3).firings == [now - 2, now - 1, now]
    yearly = Cron("@yearly")
    assert len(catch_up(yearly, hour(0), now, "run_all", 100).firings) == 10
