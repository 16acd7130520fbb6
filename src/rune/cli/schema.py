"""`rune schema`: the JSON Schema of the workflow format."""

from __future__ import annotations

import click

from rune.cli.command import Command, modules_option
from rune.cli.types import node_types
from rune.settings import load_settings

__all__ = ["command"]


@click.command("schema", cls=Command, short_help="Print the JSON Schema of the workflow format.")
@click.option("--playbook", is_flag=True, help="The schema of playbooks instead.")
@modules_option
def command(playbook: bool, modules: list[str] | None) -> None:
    """Print the JSON Schema of the workflow format, with every node type's parameters, for editors."""
    import msgspec

    from rune.formats.playbook.schema import playbook_schema
    from rune.formats.schema import workflow_schema

    types = node_types(load_settings({"modules": modules}))
    schema = playbook_schema(types) if playbook else workflow_schema(types)
    click.echo(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
