"""`rune schema`: the JSON Schema of the workflow format."""

from __future__ import annotations

import click

from rune.cli.command import Command, modules_option
from rune.cli.types import node_types
from rune.settings import load_settings

__all__ = ["command"]


@click.command("schema", cls=Command, short_help="Print the JSON Schema of the workflow format.")
@modules_option
def command(modules: list[str] | None) -> None:
    """Print the JSON Schema of the workflow format, with every node type's parameters, for editors."""
    import msgspec

    from rune.formats.schema import workflow_schema

    schema = workflow_schema(node_types(load_settings({"modules": modules})))
    click.echo(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
