"""The command `rune`. Each subcommand is imported when it is invoked, so that it costs the others nothing."""

from __future__ import annotations

import gc
import sys

import click

from rune import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COMMANDS", "INTERRUPTED", "group", "main"]

COMMANDS = {
    "run": "Run a workflow to its end.",
    "resume": "Continue what a stopped process left unfinished.",
    "validate": "Say everything that is wrong with workflows.",
    "nodes": "List the node types, or describe one.",
    "schema": "Print the JSON Schema of the workflow format.",
    "graph": "Draw a workflow.",
    "dev": "Serve the API with a worker and a scheduler, on one file.",
    "master": "Serve the API beside workers on RabbitMQ and Redis.",
    "worker": "Take Tasks from RabbitMQ and run them.",
    "scheduler": "Publish what is due: waits, time-outs and retries.",
    "topology": "Show what Rune has in RabbitMQ.",
    "executions": "Look at executions, and act on them.",
    "workflows": "Keep workflows in a master.",
    "credentials": "Keep credentials in a master.",
    "dlq": "Look at dead letters, and put them back.",
}
"""The subcommands and their short help, here so that `rune --help` imports none of them."""

INTERRUPTED = 130


def calm_collector() -> None:
    """Have Python look for garbage less often: steps leave much of it, and hardly any in cycles."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class Commands(click.Group):
    """The subcommands, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        from importlib import import_module

        # What is imported stays, so that looking for garbage in it is time lost, now and while nodes run.
        gc.disable()
        try:
            command: click.Command = import_module(f"rune.cli.{cmd_name}").command
        finally:
            gc.enable()
        calm_collector()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="rune %(version)s")
def group() -> None:
    """Run durable workflows: on this machine, with nothing else to install, or across many.

    \b
    Exit codes: 0 it went well, 1 the execution failed, 2 the definition or the
    usage is wrong, 3 the database, a server or the machine is in trouble, 130
    or 143 stopped by Ctrl-C or SIGTERM.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code."""
    try:
        return _run(arguments)
    finally:
        # The interpreter would look through everything once more before it ends. DuckDB counts on that.
        if "duckdb" not in sys.modules:
            gc.freeze()


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = group.main(arguments, prog_name="rune", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else 0
