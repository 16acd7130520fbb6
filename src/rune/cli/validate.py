"""`rune validate`: every problem of every file."""

from __future__ import annotations

import click

from rune.cli.command import Command, Exit, modules_option
from rune.cli.source import compatibility_option, look_at
from rune.cli.types import node_types
from rune.settings import load_settings

__all__ = ["command"]


@click.command("validate", cls=Command, short_help="Say everything that is wrong with workflows.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@compatibility_option
@modules_option
def command(files: tuple[str, ...], strict: bool, compatibility: bool, modules: list[str] | None) -> int:
    """Check workflow FILEs (JSON or YAML, `-` for standard input) and print all their problems."""
    types = node_types(load_settings({"modules": modules}))
    errors = warnings = 0
    for file in files:
        try:
            _, problems, report = look_at(file, types, compatibility=compatibility)
        except click.UsageError as error:
            errors += 1
            click.echo(f"error: {error.message}")
            continue
        if report:
            click.echo(report)
        wrong = sum(problem.severity == "error" for problem in problems)
        errors += wrong
        warnings += len(problems) - wrong
    click.echo(f"{_count(len(files), 'file')}: {_count(errors, 'error')}, {_count(warnings, 'warning')}")
    return Exit.WRONG if errors or (strict and warnings) else Exit.OK


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
