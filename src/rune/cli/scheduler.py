"""`rune scheduler`: publishes what is due."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from rune.cli.command import Command
from rune.cli.serving import metrics_options, serve, server_options
from rune.distributed import run_scheduler
from rune.settings import load_settings

__all__ = ["command"]


@click.command("scheduler", cls=Command, short_help="Publish what is due: waits, time-outs and retries.")
@server_options
@metrics_options
def command(**flags: Any) -> int:
    """Publish the Tasks whose time has come, beside any number of other schedulers.

    One is needed, two let one of them die: what it had in hand, the other publishes half a minute later.
    """
    settings = load_settings(flags)
    return serve(settings, partial(run_scheduler, settings))
