"""`rune workflows`: the definitions a master keeps."""

from __future__ import annotations

from typing import Any

import click

from rune.cli.command import Command, say
from rune.cli.remote import Refused, Remote, path, with_remote
from rune.cli.source import read_file
from rune.cli.tables import print_json, print_rows, shown_time
from rune.core.errors import RuneError

__all__ = ["command"]


@click.group("workflows", short_help="Keep workflows in a master.")
def command() -> None:
    """Keep workflows in a master (`rune dev`, `rune master`), in versions."""


@command.command("list", cls=Command)
@click.option("--text", metavar="TEXT", help="Whose name or id has this text.")
@with_remote
def list_(remote: Remote, as_json: bool, text: str | None) -> None:
    """List the workflows."""
    found = remote.pages(path("workflows"), text=text)
    if as_json:
        print_json(found)
        return
    print_rows(
        ("id", "name", "version", "published", "updated"),
        (
            (one["id"], one["name"], one["version"], one["published"], shown_time(one["updated_at"]))
            for one in found
        ),
    )


@command.command("show", cls=Command)
@click.argument("workflow")
@click.option("--version", type=int, help="Another version than the latest.")
@with_remote
def show(remote: Remote, as_json: bool, workflow: str, version: int | None) -> None:
    """Print a workflow's definition, as it was given."""
    where = (
        path("workflows", workflow) if version is None else path("workflows", workflow, "versions", version)
    )
    one = remote.get(where)
    if as_json or not one.get("source"):
        print_json(one if as_json else one["definition"])
    else:
        click.echo(one["source"], nl=not one["source"].endswith("\n"))


@command.command("push", cls=Command)
@click.argument("file")
@click.option("--id", "workflow", metavar="ID", help="A new version of this workflow.")
@click.option("--publish", is_flag=True, help="Let triggers and new executions use it.")
@click.option("--note", help="What this version is about.")
@with_remote
def push(
    remote: Remote, as_json: bool, file: str, workflow: str | None, publish: bool, note: str | None
) -> None:
    """Store the workflow in FILE, as a new one or as a new version."""
    body: dict[str, Any] = {"source": read_file(file)[1].decode(errors="replace"), "publish": publish}
    if note is not None:
        body["note"] = note
    if workflow is None:
        one = _created(remote, body)
    else:
        known = remote.get(path("workflows", workflow))
        one = remote.put(path("workflows", workflow), {**body, "version": known["version"]})
    if as_json:
        print_json(one)
    else:
        click.echo(f"{one['id']}  version {one['version']}")


def _created(remote: Remote, body: dict[str, Any]) -> Any:
    try:
        return remote.post(path("workflows"), body)
    except Refused as refused:
        if refused.problem.get("code") == "EXISTS":
            raise RuneError(f"{refused}; with --id this file becomes a new version of it") from refused
        raise


@command.command("versions", cls=Command)
@click.argument("workflow")
@with_remote
def versions(remote: Remote, as_json: bool, workflow: str) -> None:
    """List the versions of a workflow."""
    found = remote.pages(path("workflows", workflow, "versions"))
    if as_json:
        print_json(found)
        return
    print_rows(
        ("version", "created", "author", "note"),
        ((one["version"], shown_time(one["created_at"]), one["author"], one["note"]) for one in found),
    )


@command.command("diff", cls=Command)
@click.argument("workflow")
@click.argument("old", type=int)
@click.argument("new", type=int)
@with_remote
def diff(remote: Remote, as_json: bool, workflow: str, old: int, new: int) -> None:
    """Show what changed between two versions."""
    found = remote.get(path("workflows", workflow, "versions", new, "diff"), **{"from": old})
    if as_json:
        print_json(found)
        return
    print_rows(
        ("change", "path", "before", "after"),
        (
            (change["op"], change["path"], change.get("before"), change.get("after"))
            for change in found["changes"]
        ),
    )


@command.command("publish", cls=Command)
@click.argument("workflow")
@click.option("--version", type=int, help="Another version than the latest.")
@click.option("--none", "nothing", is_flag=True, help="Take back what is published.")
@with_remote
def publish(remote: Remote, as_json: bool, workflow: str, version: int | None, nothing: bool) -> None:
    """Let triggers and new executions use a version."""
    if nothing and version is not None:
        raise click.UsageError("--none takes back what is published: it goes with no --version")
    if not nothing and version is None:
        version = remote.get(path("workflows", workflow))["version"]
    one = remote.post(path("workflows", workflow, "publish"), {"version": version})
    if as_json:
        print_json(one)
    else:
        said = "no version" if one["published"] is None else f"version {one['published']}"
        click.echo(f"{one['id']}  {said} is published")


@command.command("export", cls=Command)
@with_remote
def export(remote: Remote, as_json: bool) -> None:
    """Print every workflow as one bundle, for `rune workflows import`."""
    print_json(remote.get(path("workflows", "export")))


@command.command("import", cls=Command)
@click.argument("file")
@with_remote
def import_(remote: Remote, as_json: bool, file: str) -> None:
    """Store the workflows of a bundle."""
    import json

    try:
        bundle = json.loads(read_file(file)[1])
    except ValueError as error:
        raise click.UsageError(f"{file} is not a bundle: {error}") from error
    done = remote.post(path("workflows", "import"), bundle)
    if as_json:
        print_json(done)
    else:
        click.echo(", ".join(f"{len(ids)} {what}" for what, ids in done.items()))


@command.command("delete", cls=Command)
@click.argument("workflow")
@with_remote
def delete(remote: Remote, as_json: bool, workflow: str) -> None:
    """Remove a workflow; its executions stay."""
    remote.delete(path("workflows", workflow))
    say(f"{workflow} is gone")
