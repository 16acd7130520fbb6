"""What the master answers, as tables for people and as JSON for programs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import click

__all__ = ["plain", "print_facts", "print_json", "print_rows", "shown_status", "shown_time"]

_COLOURS = {
    "completed": "green",
    "success": "green",
    "succeeded": "green",
    "failed": "red",
    "halted": "red",
    "running": "blue",
    "waiting": "yellow",
    "paused": "yellow",
    "pending": "yellow",
}
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MEASURED = 200
"""Rows after which the widths of columns are settled, so that a long list comes as it is read."""


class _Styled(str):
    """A text with colours of our own in it."""

    __slots__ = ()


def plain(text: str) -> str:
    """A text from elsewhere as the terminal may see it: it must not move the cursor, nor do worse."""
    return _CONTROLS.sub(" ", text)


def print_json(value: Any) -> None:
    """A value as JSON; a list as one object a line."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable) or isinstance(value, str):
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    for row in value:
        click.echo(json.dumps(row, ensure_ascii=False))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows in columns as wide as they need to be; the last one gets what is left of the line."""
    source = iter(rows)
    first = [[_text(cell) for cell in row] for row in islice(source, _MEASURED)]
    if not first:
        click.echo("nothing", err=True)
        return
    widths = [max(_width(cell) for cell in cells) for cells in zip(columns, *first, strict=True)]
    click.echo(click.style(_line([column.upper() for column in columns], widths), dim=True))
    for row in first:
        click.echo(_line(row, widths))
    for later in source:
        click.echo(_line([_text(cell) for cell in later], widths))


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one a line; what is not there is left out."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        if value not in (None, "", {}, []):
            click.echo(f"{click.style(name.ljust(width), dim=True)}  {_text(value)}")


def shown_status(status: str) -> str:
    """A status in its colour."""
    return _Styled(click.style(plain(status), fg=_COLOURS.get(status)))


def shown_time(at: str | None) -> str:
    """A time without its fractions."""
    return "" if at is None else at[:19].replace("T", " ")


def _text(cell: Any) -> str:
    if cell is None or isinstance(cell, _Styled):
        return cell or ""
    text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    return plain(text).replace("\n", " ").replace("\t", " ")


def _width(cell: str) -> int:
    return len(click.unstyle(cell))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = [cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
    line = "  ".join(parts).rstrip()
    # Who reads from a pipe wants all of it.
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(line)
    return line if _width(line) <= room else line[: room - 1 + len(line) - _width(line)] + "…"
