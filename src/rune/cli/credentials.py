"""`rune credentials`: secrets in the master's store, which gives none of them back."""

from __future__ import annotations

from typing import Any

import click

from rune.cli.command import Command, Exit, say
from rune.cli.remote import Remote, path, with_remote
from rune.cli.source import json_option
from rune.cli.tables import print_json, print_rows, shown_time

__all__ = ["command"]


@click.group("credentials", short_help="Keep credentials in a master.")
def command() -> None:
    """Keep credentials in a master. What they hold is written, never read back."""


@command.command("list", cls=Command)
@with_remote
def list_(remote: Remote, as_json: bool) -> None:
    """List the credentials, without what they hold."""
    found = remote.pages(path("credentials"))
    if as_json:
        print_json(found)
        return
    print_rows(
        ("id", "name", "type", "fields", "rotated"),
        (
            (one["id"], one["name"], one["type"], ", ".join(one["fields"]), shown_time(one["rotated_at"]))
            for one in found
        ),
    )


@command.command("create", cls=Command)
@click.argument("id")
@click.option("--name", help="What people call it.")
@click.option("--type", "kind", default="generic", help="Such as http, smtp, postgres.")
@click.option("--data", metavar="JSON|@FILE", help="Its fields; asked for if not given.")
@with_remote
def create(remote: Remote, as_json: bool, id: str, name: str | None, kind: str, data: str | None) -> None:
    """Store a credential under ID, the reference that workflows use."""
    body = {"id": id, "name": name or id, "type": kind, "data": _fields(data)}
    _print(remote.post(path("credentials"), body), as_json)


@command.command("rotate", cls=Command)
@click.argument("id")
@click.option("--data", metavar="JSON|@FILE", help="Its new fields; asked for if not given.")
@with_remote
def rotate(remote: Remote, as_json: bool, id: str, data: str | None) -> None:
    """Give a credential new contents; steps that start from now on use them."""
    _print(remote.put(path("credentials", id), {"data": _fields(data)}), as_json)


@command.command("test", cls=Command)
@click.argument("id")
@click.option("--address", metavar="URL", help="An address to try it at.")
@with_remote
def test(remote: Remote, as_json: bool, id: str, address: str | None) -> int:
    """Try a credential."""
    verdict = remote.post(path("credentials", id, "test"), {"url": address})
    if as_json:
        print_json(verdict)
    else:
        click.echo(("it works: " if verdict["ok"] else "it does not work: ") + verdict["detail"])
    return Exit.OK if verdict["ok"] else Exit.FAILED


@command.command("delete", cls=Command)
@click.argument("id")
@click.option("--force", is_flag=True, help="Even if workflows refer to it.")
@with_remote
def delete(remote: Remote, as_json: bool, id: str, force: bool) -> None:
    """Remove a credential, unless a workflow refers to it."""
    remote.delete(path("credentials", id), **({"force": "true"} if force else {}))
    say(f"{id} is gone")


def _fields(given: str | None) -> dict[str, Any]:
    """The fields of a credential; asked for one by one, unseen, so that none is left in a shell's history."""
    if given is not None:
        value = json_option("--data", given)
        if not isinstance(value, dict):
            raise click.UsageError('--data takes a JSON object, such as {"token": …}')
        return value
    fields: dict[str, Any] = {}
    while name := click.prompt("field (empty ends)", default="", show_default=False, err=True):
        fields[name] = click.prompt(f"{name}", hide_input=True, err=True)
    return fields


def _print(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
    else:
        click.echo(f"{one['id']}  version {one['version']}, with {', '.join(one['fields'])}")
