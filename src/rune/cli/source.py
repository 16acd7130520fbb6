"""What the command line names: workflow files, and JSON given as text or as a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from rune.cli.called import Beside
from rune.cli.command import Exit, say
from rune.cli.types import Types
from rune.core.errors import Problem
from rune.core.workflow import Workflow
from rune.formats.definition import examine
from rune.formats.document import MAX_DEPTH, Document
from rune.formats.jsonsource import decode
from rune.formats.report import render

__all__ = ["compatibility_option", "json_option", "load", "look_at", "read_file"]

compatibility_option = click.option(
    "--compatibility", is_flag=True, help="Let a playbook use the names of older ones."
)


def read_file(file: str) -> tuple[str, bytes]:
    """The name and the bytes of a file, or of standard input for `-`."""
    if file == "-":
        return "<stdin>", sys.stdin.buffer.read()
    try:
        return file, Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error


def look_at(
    file: str, types: Types, *, compatibility: bool = False
) -> tuple[Workflow | None, list[Problem], str]:
    """The workflow in a file, if it can be run, its problems, and these as text."""
    name, data = read_file(file)
    path = Path(file) if file != "-" else None
    document, flow, problems = examine(
        data,
        name,
        types,
        compatibility=compatibility,
        resolver=Beside(path.parent if path else Path(), compatibility=compatibility),
        identity=str(path.resolve()) if path else "",
    )
    return flow, problems, render(problems, document) if problems else ""


def load(file: str, types: Types, *, quiet: bool = False, compatibility: bool = False) -> Workflow:
    """The workflow in a file; the command ends here if it cannot be run."""
    flow, _, report = look_at(file, types, compatibility=compatibility)
    if report and not (quiet and flow):
        say(report)
    if flow is None:
        click.get_current_context().exit(Exit.WRONG)
    return flow


def json_option(option: str, given: str | None) -> Any:
    """The value of an option that takes JSON, or the file that has it."""
    if given is None:
        return None
    name, text = option, given
    if given.startswith("@"):
        name, data = read_file(given[1:])
        text = data.decode(errors="replace")
    value, problems = decode(text, MAX_DEPTH) if text.strip() else (None, [_nothing()])
    if problems:
        say(render(problems, Document(name, text, {})))
        click.get_current_context().exit(Exit.WRONG)
    return value


def _nothing() -> Problem:
    hint = "give a value, or @ and the name of a file"
    return Problem("E005", "there is no JSON", hint=hint, line=1, column=1)
