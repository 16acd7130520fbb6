"""`rune dev`: the whole of Rune in one process, on one file."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import click

from rune.cli.command import Command, modules_option, say
from rune.cli.serving import serve
from rune.cli.types import Types, node_types
from rune.settings import Settings, load_settings, state_directory

__all__ = ["command"]


@click.command("dev", cls=Command, short_help="Serve the API with a worker and a scheduler, on one file.")
@click.option("--port", type=int, metavar="N", help="The port to listen at; 8484 if not given.")
@click.option(
    "--host", metavar="ADDRESS", help="The address to listen at; others than loopback need accounts."
)
@click.option("--db", metavar="FILE", help="The SQLite file; dev.db in your state directory if not given.")
@click.option("--log-format", type=click.Choice(["plain", "json"]), help="How to log.")
@modules_option
def command(**flags: Any) -> int:
    """Start everything: the API, a worker and a scheduler in one process, on one SQLite file.

    What was unfinished when it stopped, however it stopped, goes on when it starts again.
    """
    settings = load_settings(flags)
    return serve(settings, partial(_serve, settings, node_types(settings).complete()))


async def _serve(settings: Settings, types: Types, stop: Awaitable[object]) -> None:
    from rune.master.opening import open_local
    from rune.master.serving import serving, until_stopped

    database = settings.db or _default()
    async with open_local(settings, types, database) as master, serving(master) as served:
        say(f"Rune is at {served.address} and keeps everything in {database}")
        tried = "" if master.accounts else f"Try: curl {served.address}/api/executions    "
        say(f"{tried}Stop with Ctrl-C; nothing is lost.")
        if served.invitation:
            say(f"Make the first account at {served.invitation}")
        await until_stopped(master, stop)


def _default() -> str:
    directory: Path = state_directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(directory / "dev.db")
