"""`rune nodes`: the node types there are."""

from __future__ import annotations

import shutil
import textwrap

import click

from rune.cli.command import Command, Exit, modules_option, say
from rune.cli.describe import Parameter, documentation, parameters_of, ports_of, summary
from rune.cli.types import Types, node_types
from rune.core.node import NodeType
from rune.settings import load_settings

__all__ = ["command"]


@click.command("nodes", cls=Command, short_help="List the node types, or describe one.")
@click.argument("name", required=False, metavar="[TYPE]")
@modules_option
def command(name: str | None, modules: list[str] | None) -> int:
    """List the node types, or describe TYPE: its parameters, defaults and ports."""
    types = node_types(load_settings({"modules": modules}))
    if name is None:
        click.echo(_list(types))
        return Exit.OK
    type = types.get(name)
    if type is None:
        meant = types.suggest(name)
        say(f"error: there is no node type {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
        return Exit.WRONG
    click.echo(_describe(type))
    return Exit.OK


def _list(types: Types) -> str:
    rows = [(name, summary(type)) for name in types.names() if (type := types.get(name))]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{_bold(name)}{' ' * (width - len(name))}{_hanging(doc, width)}" for name, doc in rows)


def _describe(type: type[NodeType]) -> str:
    first, _, rest = documentation(type).partition("\n")
    parts = [f"{_bold(type.name)}  {_hanging(first, len(type.name) + 2)}"]
    if rest.strip():
        parts.append(_wrapped(rest.strip()))
    parameters = parameters_of(type)
    if parameters:
        parts.append("\n".join([_bold("Parameters"), *map(_parameter, parameters)]))
    parts.append(f"{_bold('Ports')}  {ports_of(type)}")
    return "\n\n".join(parts)


def _parameter(parameter: Parameter) -> str:
    facts = [parameter.type]
    if parameter.required:
        facts.append("required")
    elif parameter.default is not None:
        facts.append(f"default {parameter.default}")
    head = f"  {_bold(parameter.name)}  {_hanging('; '.join(facts), 6)}"
    return f"{head}\n      {_hanging(parameter.description, 6)}" if parameter.description else head


def _bold(text: str) -> str:
    return click.style(text, bold=True)


def _hanging(text: str, indent: int) -> str:
    """Text whose further lines are indented."""
    lines = textwrap.wrap(text, max(30, _width() - indent), break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def _wrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, _width()) for part in text.split("\n\n"))


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 110)
