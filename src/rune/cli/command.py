"""What the subcommands share: how errors become words on standard error and an exit code."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import Any

import click

from rune.core.errors import DefinitionError, InfrastructureError, RuneError

__all__ = ["Command", "Exit", "modules_option", "say"]


class Exit(IntEnum):
    """What an exit code means."""

    OK = 0
    FAILED = 1
    WRONG = 2
    INFRASTRUCTURE = 3


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else value.split(",")


modules_option = click.option(
    "--modules",
    metavar="NAME,…",
    callback=_names,
    help="Modules with node types of your own, from the working directory too; instead of $RUNE_MODULES.",
)


class Command(click.Command):
    """A subcommand whose errors are told in a line, not in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DefinitionError as error:
            for problem in error.problems:
                say(f"error: {problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
            ctx.exit(Exit.WRONG)
        except InfrastructureError as error:
            say(f"error: {error}")
            ctx.exit(Exit.INFRASTRUCTURE)
        except RuneError as error:
            say(f"error: {error}")
            ctx.exit(Exit.WRONG)
        except BrokenPipeError:
            # Whoever read our output has gone, as `head` does; the interpreter must not complain at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            say(f"error: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
            ctx.exit(Exit.INFRASTRUCTURE)


def say(text: str) -> None:
    """A line on standard error."""
    click.echo(text, err=True)
