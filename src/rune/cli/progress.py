"""Progress in a terminal: a tree of the nodes, with a bar for each fan-out and a countdown for waits."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live as Screen
from rich.text import Text

from rune.cli.tally import Row, State, Tally
from rune.cli.view import counted, duration
from rune.core.node import Role

__all__ = ["Live", "draw"]

_STYLES: dict[State, str] = {
    "pending": "dim",
    "running": "cyan",
    "waiting": "yellow",
    "success": "green",
    "failed": "bold red",
    "skipped": "dim",
}
_MARKS: dict[State, str] = {"pending": "·", "waiting": "◷", "success": "✔", "failed": "✖", "skipped": "–"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ACTIVE = ("running", "waiting")
_BAR = 24
_WIDEST_NAME = 40


class Live:
    """Draws the tally in place on standard error, at most ten times a second."""

    pause = 0.1

    def __init__(
        self, tally: Tally, console: Console | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.tally = tally
        self._clock = clock
        self._console = console or Console(stderr=True)
        self._lines: list[str] = []
        # What other code prints goes where it was meant to go.
        self._screen = Screen(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._screen.start()

    def show(self) -> None:
        """Draw the present."""
        self._draw(last=False)

    def close(self, *, finished: bool) -> None:
        """Draw a last time, and leave it on the screen."""
        if self._screen.is_started:
            self._draw(last=finished)
            self._screen.stop()

    def log(self, line: str) -> None:
        """Keep a line of the log, to be put above the tree with the next picture."""
        self._lines.append(line)

    def _draw(self, *, last: bool) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._console.print(Text("\n".join(lines), overflow="fold"))
        height = self._console.height - 2
        rows = list(self.tally)
        shown = rows if last else _window(rows, height)
        self._screen.update(draw(shown, self._clock(), last=last, rest=len(rows) - len(shown)), refresh=True)


def _window(rows: list[Row], height: int) -> list[Row]:
    """The rows that fit on the screen, from a little before the first that is active."""
    if len(rows) <= height:
        return rows
    active = next((i for i, row in enumerate(rows) if row.state in _ACTIVE), len(rows))
    start = max(0, min(active - height // 3, len(rows) - height + 1))
    return rows[start : start + height - 1]


def draw(rows: list[Row], now: float, *, last: bool = False, rest: int = 0) -> Group:
    """One picture."""
    names = min(max((len(_name(row)) for row in rows), default=0), _WIDEST_NAME)
    types = max((len(row.node.type.name) for row in rows), default=0)
    lines = [_line(row, now, names, types, last=last) for row in rows]
    if rest > 0:
        lines.append(Text(f"  … {rest:,} more nodes", style="dim"))
    return Group(*lines)


def _line(row: Row, now: float, names: int, types: int, *, last: bool) -> Text:
    state = row.state
    if last:
        state = row.ended
    style = _STYLES[state]
    mark = _MARKS.get(state) or _SPINNER[int(now * 10) % len(_SPINNER)]
    name = _name(row)
    if len(name) > names:
        name = name[: names - 1] + "…"
    quiet = "dim" if state in ("pending", "skipped") else ""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {mark} ", style)
    line.append(f"{name:<{names}}  ", quiet)
    line.append(f"{row.node.type.name:<{types}}  ", "dim")
    line.append_text(_about(row, state, now))
    return line


def _name(row: Row) -> str:
    return "│ " * row.depth + row.node.name


def _about(row: Row, state: State, now: float) -> Text:
    if row.node.role is Role.GATHER and row.items is not None and row.items.total:
        return _bar(row)
    text = Text()
    if row.node.role is Role.SPLIT and row.items is not None and row.succeeded:
        text.append("items as they are read" if row.items.reading else f"{row.items.total:,} items")
    elif state == "waiting" and row.arrived and not row.depth:
        text.append(f"{row.arrived[0]} of {row.arrived[1]} arrived", "yellow")
    elif state == "waiting" and row.resume_at:
        text.append(_countdown(row, now), "yellow")
    elif row.depth:
        text.append(counted(row))
    elif state in ("success", "failed"):
        text.append(duration(row.changed - row.began), "dim")
    elif state == "running":
        text.append(duration(now - row.began), "dim")
    if row.error is not None and (row.failed or state == "waiting"):
        text.append(f"  {row.error.code}: {row.error.message}", "red")
    return text


def _countdown(row: Row, now: float) -> str:
    many = f"{row.resting:,} resting, " if row.resting > 1 else ""
    left = max(row.resume_at - now, 0.0)
    return f"{many}{f'{left:.1f} s' if left < 60 else duration(left)} left"


def _bar(row: Row) -> Text:
    """How far a fan-out is: what went well, what failed, what is to come; then the numbers."""
    done, total, failed, skipped = row.processed
    good = round(_BAR * (done - min(failed, done)) / total)
    bad = min(_BAR - good, -(-_BAR * min(failed, done) // total))
    text = Text()
    if row.items is not None and row.items.reading:
        text.append(f"{done:,} so far")
    else:
        text.append("━" * good, "green" if done == total else "cyan")
        text.append("━" * bad, "red")
        text.append("━" * (_BAR - good - bad), "bright_black")
        text.append(f" {done:,}/{total:,}")
    if failed:
        text.append(f", {failed:,} failed", "red")
    if skipped:
        text.append(f", {skipped:,} skipped", "dim")
    return text
