"""`rune master`: the API alone, beside workers and schedulers on RabbitMQ and Redis."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

import click

from rune.cli.command import Command, modules_option, say
from rune.cli.serving import serve, server_options
from rune.cli.types import Types, node_types
from rune.settings import Settings, load_settings

__all__ = ["command"]


@click.command("master", cls=Command, short_help="Serve the API beside workers on RabbitMQ and Redis.")
@click.option("--port", type=int, metavar="N", help="The port to listen at; 8484 if not given.")
@click.option("--host", metavar="ADDRESS", help="The address to listen at; 127.0.0.1 if not given.")
@click.option(
    "--history",
    "history_url",
    metavar="URL|FILE",
    help="PostgreSQL (postgresql://…), or the path of a SQLite file; instead of $RUNE_HISTORY_URL.",
)
@server_options
@modules_option
def command(**flags: Any) -> int:
    """Serve the API, record what happens, and start what triggers start.

    Any number of masters may share one PostgreSQL; workers and schedulers are processes of their own.
    """
    settings = load_settings(flags)
    return serve(settings, partial(_serve, settings, node_types(settings).complete()))


async def _serve(settings: Settings, types: Types, stop: Awaitable[object]) -> None:
    from rune.master.opening import open_remote
    from rune.master.serving import serving, until_stopped

    async with open_remote(settings, types) as master, serving(master) as served:
        say(f"Rune's master is at {served.address}")
        if served.invitation:
            say(f"Make the first account at {served.invitation}")
        await until_stopped(master, stop)
