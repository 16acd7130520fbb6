"""Progress in a terminal."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.console import Console

from rune.cli.progress import Live, draw
from rune.cli.tally import Tally
from rune.cli.view import duration
from tests.cli.statuses import fan_out, flow, status


def shown(tally: Tally, now: float, *, last: bool = False) -> list[str]:
    """The picture as text."""
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        console.print(draw(list(tally), now, last=last))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_tree_of_nodes_with_their_states() -> None:
    tally = Tally({}.get, lambda: 100.0)
    tally.add(flow(dict.fromkeys("abcd", "log"), [("a", "b"), ("b", "c"), ("c", "d")]))
    tally.hear([status("a", "running"), status("a", "success"), status("b", "running")])
    tally.hear([status("c", "running"), status("c", "failed", error="no")])
    assert shown(tally, 102.0) == [
        " ✔ a  log  0 ms",
        " ⠋ b  log  2.0 s",
        " ✖ c  log  0 ms  BROKEN: no",
        " · d  log",
    ]
    assert shown(tally, 102.0, last=True)[-1] == " – d  log"


def test_bars_for_fan_outs_indented_by_depth() -> None:
    tally = Tally({}.get)
    tally.add(fan_out())
    tally.hear([status("outer", "success", step="o", count=2)])
    tally.hear([status("inner", "success", step="i", count=4)])
    progress = {"processed": 3, "total": 4, "failed": 1, "skipped": 0}
    tally.hear([status("some", "waiting", barrier="i", details=progress)])
    lines = shown(tally, 0.0)
    assert lines[0] == " ✔ outer     split       2 items"
    assert lines[1] == " ✔ │ inner   split       4 items"
    assert lines[3] == f" ⠋ │ some    aggregator  {'━' * 24} 3/4, 1 failed"
    assert lines[4] == f" ⠋ all       aggregator  {'━' * 24} 0/2"


def test_a_countdown() -> None:
    tally = Tally({}.get)
    tally.add(flow({"a": "wait"}, []))
    for _ in range(3):
        tally.hear([status("a", "running")])
        tally.hear([status("a", "waiting", details={"resume_at": "2026-01-01T00:00:10.000Z"})])
    assert shown(tally, 1767225607.5) == [" ◷ a  wait  3 resting, 2.5 s left"]


def test_more_nodes_than_lines_show_where_it_is() -> None:
    names = [f"n{i}" for i in range(200)]
    tally = Tally({}.get)
    tally.add(flow(dict.fromkeys(names, "log"), list(pairwise(names))))
    tally.hear([status(name, state) for name in names[:120] for state in ("running", "success")])
    tally.hear([status("n120", "running")])
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True)
    view = Live(tally, console)
    view.show()
    picture = console.file.getvalue()  # type: ignore[attr-defined]
    view.close(finished=True)
    assert "n120" in picture
    assert "n50 " not in picture
    assert "more nodes" in picture


def test_log_lines_go_above_the_tree_and_the_end_stays() -> None:
    tally = Tally({}.get)
    tally.add(flow({"a": "log"}, []))
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True)
    view = Live(tally, console)
    tally.hear([status("a", "running")])
    view.log("12:00:00 INFO a: [hello]")
    view.show()
    tally.hear([status("a", "success")])
    view.close(finished=True)
    view.close(finished=True)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written.index("INFO a: [hello]") < written.index("✔")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0421, "42 ms"),
        (0.9999, "1.0 s"),
        (59.4, "59.4 s"),
        (61, "1 min 1 s"),
        (7200, "2 h"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
