"""`rune dlq`: messages that nobody could work on."""

from __future__ import annotations

import click

from rune.cli.command import Command, say
from rune.cli.remote import Remote, path, with_remote
from rune.cli.tables import print_json, print_rows, shown_time

__all__ = ["command"]


@click.group("dlq", short_help="Look at dead letters, and put them back.")
def command() -> None:
    """Look at dead letters: messages that nobody could work on, and why."""


@command.command("list", cls=Command)
@click.option("--limit", type=click.IntRange(1), default=50, help="How many at most.")
@with_remote
def list_(remote: Remote, as_json: bool, limit: int) -> None:
    """List the dead letters, the oldest first."""
    found = remote.pages(path("letters"), limit)
    if as_json:
        print_json(found)
        return
    print_rows(
        ("id", "at", "execution", "node", "reason"),
        ((one["id"], shown_time(one["at"]), one["execution"], one["node"], one["reason"]) for one in found),
    )


@command.command("show", cls=Command)
@click.argument("letter")
@with_remote
def show(remote: Remote, as_json: bool, letter: str) -> None:
    """Print a dead letter, with its message."""
    print_json(remote.get(path("letters", letter)))


@command.command("redrive", cls=Command)
@click.argument("letters", nargs=-1, required=True)
@with_remote
def redrive(remote: Remote, as_json: bool, letters: tuple[str, ...]) -> None:
    """Put dead letters back into the queue they came from."""
    for letter in letters:
        remote.post(path("letters", letter, "redrive"))
        say(f"{letter} is back in its queue")


@command.command("drop", cls=Command)
@click.argument("letters", nargs=-1, required=True)
@with_remote
def drop(remote: Remote, as_json: bool, letters: tuple[str, ...]) -> None:
    """Forget dead letters."""
    for letter in letters:
        remote.delete(path("letters", letter))
        say(f"{letter} is gone")
