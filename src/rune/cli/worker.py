"""`rune worker`: takes Tasks from RabbitMQ and runs them."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
import msgspec

from rune.cli.command import Command, modules_option
from rune.cli.serving import metrics_options, serve, server_options
from rune.cli.types import node_types
from rune.distributed import run_worker
from rune.settings import Settings, load_settings

__all__ = ["command"]


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


@click.command("worker", cls=Command, short_help="Take Tasks from RabbitMQ and run them.")
@server_options
@click.option("--concurrency", type=int, metavar="N", help="Tasks that run at the same time, in a process.")
@click.option("--prefetch", type=int, metavar="N", help="Tasks a process takes in advance.")
@click.option("--processes", type=click.IntRange(1), default=1, metavar="N", help="Processes to start.")
@click.option("--queues", callback=_names, metavar="NAME,…", help="Pools, or queues, to take Tasks from.")
@metrics_options
@click.option("--status-batch-ms", type=float, metavar="MS", help="How long statuses wait for others.")
@modules_option
def command(processes: int, **flags: Any) -> int:
    """Run the Tasks of any number of executions, beside any number of other workers.

    On SIGTERM it takes no more, lets what is running end within the grace period, and gives back the rest; a
    second one ends it at once. Either way nothing is lost.
    """
    settings = load_settings(flags)
    types = node_types(settings).complete()
    return serve(settings, *(partial(run_worker, _nth(settings, n), types) for n in range(processes)))


def _nth(settings: Settings, n: int) -> Settings:
    """The settings of one of several processes: each has a port of its own."""
    port = settings.metrics_port
    return settings if port is None else msgspec.structs.replace(settings, metrics_port=port + n)
