"""Progress as lines."""

from __future__ import annotations

import pytest

from rune.cli.plain import Lines
from rune.cli.tally import Tally
from rune.core.workflow import Workflow
from tests.cli.statuses import fan_out, flow, status


class Clock:
    """A clock that is set by hand."""

    now = 1_767_225_600.0

    def __call__(self) -> float:
        return self.now


def lines_of(workflow: Workflow) -> tuple[Lines, Clock]:
    """A view of a workflow."""
    clock = Clock()
    tally = Tally({}.get, clock)
    tally.add(workflow)
    return Lines(tally), clock


def texts(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was written, without the times."""
    return [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]


def test_one_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    view, clock = lines_of(flow({"a": "log", "b": "log"}, [("a", "b")]))
    view.tally.hear([status("a", "running")])
    view.show()
    view.show()
    clock.now += 1.5
    view.tally.hear([status("a", "success"), status("b", "running"), status("b", "failed", error="no")])
    view.show()
    view.close(finished=True)
    assert texts(capsys) == ["a running", "a success (1.5 s)", "b failed (BROKEN: no)"]


def test_a_line_begins_with_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    view, clock = lines_of(flow({"a": "log"}, []))
    clock.now += 0.25
    view.tally.hear([status("a", "running")])
    view.show()
    assert capsys.readouterr().err.split()[0].endswith(":00.250")


def test_a_fan_out_gets_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view, clock = lines_of(fan_out())
    view.tally.hear([status("outer", "success", step="o", count=500)])
    for done in range(1, 501):
        progress = {"processed": done, "total": 500, "failed": 0, "skipped": 0}
        view.tally.hear([status("work", "running"), status("work", "success")])
        view.tally.hear([status("all", "waiting", barrier="o", details=progress)])
        clock.now += 0.01
        view.show()
    written = texts(capsys)
    assert written[0] == "outer success (500 items)"
    assert len(written) <= 7
    assert all("all running" in line for line in written[1:])
    view.close(finished=True)
    assert any(line.strip().startswith("work success (500") for line in texts(capsys))


def test_how_many_is_told_when_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    view, _ = lines_of(flow({"each": "split", "all": "aggregator"}, [("each", "all")]))
    view.tally.hear([status("each", "running"), status("each", "success", count=None, step="b")])
    view.show()
    progress = {"processed": 50, "failed": 0, "total": None}
    view.tally.hear([status("all", "waiting", details=progress, barrier="b")])
    view.show()
    view.tally.hear([status("all", "success", count=90)])
    view.show()
    view.close(finished=True)
    assert texts(capsys) == [
        "each success (items as they are read)",
        "all running (50 items so far)",
        "each success (90 items)",
        "all success (90/90 items)",
    ]


def test_a_wait_says_until_when(capsys: pytest.CaptureFixture[str]) -> None:
    view, _ = lines_of(flow({"a": "wait"}, []))
    view.tally.hear([status("a", "running")])
    view.tally.hear([status("a", "waiting", details={"resume_at": "2026-01-01T00:00:10.000Z"})])
    view.show()
    assert texts(capsys)[0].startswith("a waiting (until 202")


def test_a_log_line_stands_where_it_happened(capsys: pytest.CaptureFixture[str]) -> None:
    view, _ = lines_of(flow({"a": "log", "b": "log"}, [("a", "b")]))
    view.tally.hear([status("a", "success"), status("b", "running")])
    view.log("12:00:00 INFO b: hello")
    assert texts(capsys) == ["a success", "b running", "INFO b: hello"]
