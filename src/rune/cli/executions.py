"""`rune executions`: what runs and what has run, in the master's history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from rune.cli.command import Command, Exit, say
from rune.cli.remote import Remote, path, with_remote
from rune.cli.source import json_option, read_file
from rune.cli.tables import plain, print_facts, print_json, print_rows, shown_status, shown_time

__all__ = ["command"]

_ENDED = ("completed", "failed", "halted")
_COUNTED = ("running", "waiting", "success", "failed", "stopped")
_ITEMS = ("total", "pending", "running", "succeeded", "failed", "skipped")


@click.group("executions", short_help="Look at executions, and act on them.")
def command() -> None:
    """Look at the executions of a master (`rune dev`, `rune master`), and act on them."""


@command.command("list", cls=Command)
@click.option("--workflow", metavar="ID", help="Of this workflow.")
@click.option("--status", metavar="STATUS", help="Such as running, completed, failed.")
@click.option("--since", metavar="TIME", help="Created at this time or later (ISO 8601).")
@click.option("--until", metavar="TIME", help="Created before this time.")
@click.option("--text", metavar="TEXT", help="Whose name, id or error has this text.")
@click.option("--limit", type=click.IntRange(1), default=50, help="How many at most.")
@with_remote
def list_(remote: Remote, as_json: bool, limit: int, **filters: Any) -> None:
    """List executions, the newest first."""
    found = remote.pages(path("executions"), limit, **filters)
    if as_json:
        print_json(found)
        return
    print_rows(
        ("id", "name", "status", "created", "ms", "error"),
        (
            (
                one["id"],
                one["name"],
                shown_status(one["status"]),
                shown_time(one["created_at"]),
                one["duration_ms"],
                (one["error"] or {}).get("message") or one["reason"],
            )
            for one in found
        ),
    )


@command.command("show", cls=Command)
@click.argument("execution")
@with_remote
def show(remote: Remote, as_json: bool, execution: str) -> None:
    """Show one execution: its state, its nodes, its splits."""
    one = remote.get(path("executions", execution))
    if as_json:
        print_json(one)
        return
    facts = ("id", "name", "workflow_id", "workflow_version", "trigger", "parent", "reason", "error", "input")
    times = {name: shown_time(one[name]) for name in ("created_at", "started_at", "ended_at")}
    print_facts({"status": shown_status(one["status"]), **{name: one[name] for name in facts}, **times})
    if one["nodes"]:
        click.echo()
        print_rows(
            ("node", *_COUNTED),
            ((node, *(counts[name] or "" for name in _COUNTED)) for node, counts in one["nodes"].items()),
        )
    if one["splits"]:
        click.echo()
        print_rows(
            ("split", "barrier", *_ITEMS),
            ((part["node"], part["barrier"], *(part[name] for name in _ITEMS)) for part in one["splits"]),
        )


@command.command("start", cls=Command)
@click.argument("workflow", required=False)
@click.option("--file", metavar="FILE", help="Run the definition in this file instead of a stored workflow.")
@click.option("--input", "payload", metavar="JSON|@FILE", help="What the execution starts with.")
@click.option("--wait", type=click.FloatRange(0), default=0, help="Seconds to wait for its end.")
@with_remote
def start(
    remote: Remote, as_json: bool, workflow: str | None, file: str | None, payload: str | None, wait: float
) -> int:
    """Start an execution of a stored WORKFLOW, or of a file."""
    if (workflow is None) == (file is None):
        raise click.UsageError("name a WORKFLOW, or a file with --file")
    body: dict[str, Any] = {"input": json_option("--input", payload), "wait": wait}
    if file is None:
        body["workflow_id"] = workflow
    else:
        body["source"] = read_file(file)[1].decode(errors="replace")
    one = remote.post(path("executions"), body, patience=wait)
    if as_json:
        print_json(one)
    else:
        click.echo(f"{one['id']}  {shown_status(one['status'])}")
    return Exit.FAILED if one["status"] in _ENDED[1:] else Exit.OK


@command.command("events", cls=Command)
@click.argument("execution")
@click.option("--limit", type=click.IntRange(1), help="How many at most.")
@click.option("--engine", is_flag=True, help="Of a playbook: the events of the engine below it.")
@with_remote
def events(remote: Remote, as_json: bool, execution: str, limit: int | None, engine: bool) -> None:
    """List everything that happened, in order; of a playbook in its own words."""
    query = {"view": "engine"} if engine else {}
    found = remote.pages(path("executions", execution, "events"), limit, **query)
    if as_json:
        print_json(found)
        return
    print_rows(
        ("seq", "at", "event", "node", "item", "ms", "error"),
        (
            (
                event["seq"],
                shown_time(event["at"]),
                event["kind"],
                _place(event),
                event["item"],
                event["duration_ms"] or "",
                (event["error"] or {}).get("message"),
            )
            for event in found
        ),
    )


def _place(event: Mapping[str, Any]) -> str | None:
    """The node, and of a playbook's step the task."""
    task = (event["details"] or {}).get("task")
    return f"{event['node']}.{task}" if task else event["node"]


@command.command("logs", cls=Command)
@click.argument("execution")
@click.option("--follow", "-f", is_flag=True, help="Go on until it has ended.")
@with_remote
def logs(remote: Remote, as_json: bool, execution: str, follow: bool) -> None:
    """Print the execution's log."""
    after, seen = None, 0
    while True:
        # What is written between the two looks is found by the next round.
        ended = not follow or remote.get(path("executions", execution))["status"] in _ENDED
        page = remote.get(path("executions", execution, "logs"), after=after, limit=500)
        for line in page["items"]:
            # The last page is read again and again until it is full.
            if line["seq"] > seen:
                seen = line["seq"]
                _print_line(line, as_json)
        after = page["next"] or after
        if page["next"] is None and ended:
            return
        if page["next"] is None:
            time.sleep(0.5)


def _print_line(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json([line])
        return
    item = f"[{line['item']}]" if line["item"] is not None else ""
    node = f"{line['node'] or ''}{item}"
    click.echo(f"{shown_time(line['at'])} {line['level']:7} {node}: {plain(line['message'])}")


@command.command("why", cls=Command)
@click.argument("execution")
@with_remote
def why(remote: Remote, as_json: bool, execution: str) -> None:
    """Say what an execution is waiting for."""
    found = remote.get(path("executions", execution, "why"))
    if as_json:
        print_json(found)
        return
    click.echo(f"it is {shown_status(found['status'])}")
    if found["holds"]:
        print_rows(
            ("held by", "node", "until", "detail"),
            (
                (hold["kind"], hold["node"], shown_time(hold["until"]), hold["detail"])
                for hold in found["holds"]
            ),
        )
    if found["positions"]:
        click.echo()
        print_rows(
            ("at node", "status", "since", "step"),
            (
                (place["node"], shown_status(place["status"]), shown_time(place["since"]), place["step"])
                for place in found["positions"]
            ),
        )


@command.command("cancel", cls=Command)
@click.argument("executions", nargs=-1, required=True)
@click.option("--reason", default="cancelled", help="Why.")
@with_remote
def cancel(remote: Remote, as_json: bool, executions: tuple[str, ...], reason: str) -> None:
    """End executions before their time."""
    for execution in executions:
        one = remote.post(path("executions", execution, "cancel"), {"reason": reason})
        _print_done(one, as_json)


@command.command("pause", cls=Command)
@click.argument("execution")
@with_remote
def pause(remote: Remote, as_json: bool, execution: str) -> None:
    """Let nothing further of an execution start."""
    _print_done(remote.post(path("executions", execution, "pause")), as_json)


@command.command("resume", cls=Command)
@click.argument("execution")
@with_remote
def resume(remote: Remote, as_json: bool, execution: str) -> None:
    """Let a paused execution go on."""
    _print_done(remote.post(path("executions", execution, "resume")), as_json)


@command.command("redrive", cls=Command)
@click.argument("execution")
@click.option("--node", metavar="ID", help="Only what failed at this node.")
@click.option("--split", metavar="BARRIER", help="Only the failed items of this split.")
@click.option(
    "--item", "items", type=int, multiple=True, help="Only this item of the split; may be repeated."
)
@click.option(
    "--edit",
    "edits",
    metavar="ITEM=JSON",
    multiple=True,
    help="Another value for this item of the split; may be repeated.",
)
@click.option("--input", "payload", metavar="JSON|@FILE", help="Another input.")
@with_remote
def redrive(
    remote: Remote,
    as_json: bool,
    execution: str,
    node: str | None,
    split: str | None,
    items: tuple[int, ...],
    edits: tuple[str, ...],
    payload: str | None,
) -> None:
    """Run again what failed, as a new execution; what had succeeded stands."""
    if (items or edits) and split is None:
        option = "--item" if items else "--edit"
        raise click.UsageError(f"{option} needs --split: `rune executions show` names the splits")
    body: dict[str, Any] = {}
    if node is not None:
        body["node"] = node
    if split is not None:
        body["split"] = {"barrier": split, **({"items": list(items)} if items else {})}
    if edits:
        body["items"] = dict(_edited(edit) for edit in edits)
    if payload is not None:
        body["input"] = json_option("--input", payload)
    _print_done(remote.post(path("executions", execution, "redrive"), body), as_json)


def _edited(edit: str) -> tuple[str, Any]:
    item, _, value = edit.partition("=")
    if not (item.isascii() and item.isdecimal()):
        raise click.UsageError(f'--edit {edit} does not say which item: write --edit \'3={{"name": "Ada"}}\'')
    return item, json_option("--edit", value)


@command.command("fork", cls=Command)
@click.argument("execution")
@click.argument("node")
@click.option("--version", type=int, help="Another version of the workflow.")
@click.option("--input", "payload", metavar="JSON|@FILE", help="Another input.")
@with_remote
def fork(
    remote: Remote, as_json: bool, execution: str, node: str, version: int | None, payload: str | None
) -> None:
    """Run again from NODE on, as a new execution; what came before stands."""
    body: dict[str, Any] = {"node": node}
    if version is not None:
        body["version"] = version
    if payload is not None:
        body["input"] = json_option("--input", payload)
    _print_done(remote.post(path("executions", execution, "fork"), body), as_json)


@command.command("delete", cls=Command)
@click.argument("execution")
@with_remote
def delete(remote: Remote, as_json: bool, execution: str) -> None:
    """Forget an execution that has ended."""
    remote.delete(path("executions", execution))
    say(f"{execution} is gone")


def _print_done(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
    else:
        click.echo(f"{one['id']}  {shown_status(one['status'])}")
