"""`rune resume`: what a stopped process left unfinished."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from rune.cli import stores
from rune.cli.command import Command, Exit, modules_option, say
from rune.cli.result import show_message, show_result
from rune.cli.session import Stopped, advice, open_session
from rune.cli.types import Types, node_types
from rune.core.messages import CompletionMessage
from rune.core.workflow import Workflow
from rune.settings import Settings, load_settings

__all__ = ["command"]

Ended = list[tuple[CompletionMessage, Workflow | None]]


@click.command("resume", cls=Command, short_help="Continue what a stopped process left unfinished.")
@click.option("--db", metavar="FILE", help="The SQLite file to go on with.")
@click.option("--json", "as_json", is_flag=True, help="Print each completion message, as one line of JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, only the results.")
@click.option(
    "--files",
    metavar="DIR",
    default=".",
    help="Where the files lie that the workflow reads; here if not given.",
)
@modules_option
def command(db: str | None, as_json: bool, quiet: bool, files: str, modules: list[str] | None) -> int:
    """Continue every execution in a database to its end; without --db, list what could be continued."""
    settings = load_settings({"db": db, "modules": modules})
    if settings.db is None:
        return _list()
    if not Path(settings.db).is_file():
        raise click.UsageError(f"there is no database {settings.db}")
    try:
        ended = asyncio.run(_resume(settings, node_types(settings), settings.db, quiet=quiet, files=files))
    except Stopped as stopped:
        say(advice(settings.db, files))
        return stopped.code
    if stores.is_ours(settings.db):
        stores.remove(settings.db)
    if not ended and not quiet:
        say("nothing is left to do")
    codes = [_show(completion, flow, as_json=as_json, quiet=quiet) for completion, flow in ended]
    return max(codes, default=Exit.OK)


def _show(completion: CompletionMessage, flow: Workflow | None, *, as_json: bool, quiet: bool) -> Exit:
    if as_json:
        show_message(completion)
        return Exit.OK if completion.status == "completed" else Exit.FAILED
    return show_result(completion, flow, quiet=quiet)


def _list() -> int:
    left = stores.leftovers()
    for path in left:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(path.stat().st_mtime))
        click.echo(f"{since}  " + ("(running)" if stores.in_use(path) else f"rune resume --db {path}"))
    if not left:
        say("nothing was left unfinished; --db names a database of your own")
    return Exit.OK


async def _resume(settings: Settings, types: Types, database: str, *, quiet: bool, files: str) -> Ended:
    ended: Ended = []
    async with open_session(settings, types, database, quiet=quiet, files=files) as session:
        rune = session.rune
        for execution in await rune.unfinished():
            completion = await session.result(execution)
            await rune.acknowledge(completion)
            ended.append((completion, rune.flows.get(completion.workflow_id)))
    return ended
