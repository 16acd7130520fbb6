"""`rune topology`: what Rune has in RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterable

import click

from rune.backends.rabbitmq.rendering import as_definitions, as_json, as_table
from rune.backends.rabbitmq.topology import describe
from rune.cli.command import Command
from rune.settings import load_settings

__all__ = ["command"]


@click.command("topology", cls=Command, short_help="Show what Rune has in RabbitMQ.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--definitions", "form", flag_value="definitions", help="For `rabbitmqctl import_definitions`.")
@click.option("--pools", default="", metavar="NAME,…", help="Pools with a queue of their own.")
@click.option("--quorum", is_flag=True, default=None, help="With quorum queues.")
@click.option("--vhost", default="/", metavar="NAME", help="Of --definitions.", show_default=True)
def command(form: str | None, pools: str, quorum: bool | None, vhost: str) -> None:
    """Show the exchanges, queues, bindings and users of Rune; workers declare what is missing of them.

    Where they may not, an administrator imports the definitions. Their users have no passwords yet: set them
    with `rabbitmqctl change_password`.
    """
    settings = load_settings({"quorum": quorum})
    try:
        described = describe(pools=_names(pools), retry_delays=settings.retry_delays, quorum=settings.quorum)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--pools") from error
    match form:
        case "json":
            click.echo(as_json(described))
        case "definitions":
            click.echo(as_definitions(described, vhost=vhost))
        case _:
            click.echo(as_table(described), nl=False)


def _names(text: str) -> Iterable[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
