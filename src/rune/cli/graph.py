"""`rune graph`: a workflow as a picture."""

from __future__ import annotations

import click

from rune.cli.command import Command, modules_option
from rune.cli.source import load
from rune.cli.types import node_types
from rune.settings import load_settings

__all__ = ["command"]


@click.command("graph", cls=Command, short_help="Draw a workflow.")
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid"]),
    default="text",
    show_default=True,
    help="A tree for the terminal, or a Mermaid flowchart for documents.",
)
@modules_option
def command(file: str, form: str, modules: list[str] | None) -> None:
    """Draw the workflow in FILE (JSON or YAML, `-` for standard input)."""
    from rune.formats import drawing

    flow = load(file, node_types(load_settings({"modules": modules})))
    draw = drawing.mermaid if form == "mermaid" else drawing.text
    click.echo(draw(flow), nl=False)
