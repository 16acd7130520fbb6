"""`rune run`: a workflow, from its start to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from rune.cli import stores
from rune.cli.command import Command, Exit, modules_option, say
from rune.cli.result import show_message, show_result
from rune.cli.session import Stopped, advice, open_session
from rune.cli.source import compatibility_option, json_option, load
from rune.cli.types import Types, node_types
from rune.core.errors import NodeError
from rune.core.messages import CompletionMessage
from rune.core.workflow import Workflow
from rune.settings import Settings, load_settings

__all__ = ["command"]


@click.command("run", cls=Command, short_help="Run a workflow to its end.")
@click.argument("file", metavar="FILE")
@click.option("--input", "payload", metavar="JSON|@FILE", help="What the execution starts with: `$trigger`.")
@click.option(
    "--context",
    metavar="JSON|@FILE",
    help='The initial context, by hand: an object such as {"$fetch": …}.',
)
@click.option("--db", metavar="FILE", help="The SQLite file to run on; kept afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print the completion message, as one line of JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, only the result.")
@compatibility_option
@modules_option
def command(
    file: str,
    payload: str | None,
    context: str | None,
    db: str | None,
    as_json: bool,
    quiet: bool,
    compatibility: bool,
    modules: list[str] | None,
) -> int:
    """Run the workflow in FILE (JSON or YAML, `-` for standard input) and print its result.

    Every step is kept in a SQLite file. Without --db it is one in your state directory, which is removed
    when the execution has ended; `rune resume` continues what was interrupted. Files that it reads lie below
    the directory of artifacts, or below that of FILE.
    """
    settings = load_settings({"db": db, "modules": modules})
    given = json_option("--input", payload)
    known = json_option("--context", context)
    if known is not None and not isinstance(known, dict):
        raise click.UsageError("--context takes a JSON object, with a value for each name")
    types = node_types(settings)
    flow = load(file, types, quiet=quiet, compatibility=compatibility)
    database = settings.db or stores.fresh(flow.id)
    files = str(Path.cwd() if file == "-" else Path(file).resolve().parent)
    try:
        completion = asyncio.run(
            _run(settings, types, database, flow, given, known or {}, quiet=quiet, files=files)
        )
    except Stopped as stopped:
        say(advice(database, files))
        return stopped.code
    except NodeError:
        # It could not even be started, so that there is nothing to continue.
        _discard(settings, database)
        raise
    _discard(settings, database)
    if as_json:
        show_message(completion)
        return Exit.OK if completion.status == "completed" else Exit.FAILED
    return show_result(completion, flow, quiet=quiet)


def _discard(settings: Settings, database: str) -> None:
    if settings.db is None:
        stores.remove(database)


async def _run(
    settings: Settings,
    types: Types,
    database: str,
    flow: Workflow,
    given: Any,
    known: dict[str, Any],
    *,
    quiet: bool,
    files: str,
) -> CompletionMessage:
    async with open_session(settings, types, database, quiet=quiet, flow=flow, files=files) as session:
        execution = await session.rune.start(flow, input=given, context=known)
        completion = await session.result(execution)
        await session.rune.acknowledge(completion)
        return completion
