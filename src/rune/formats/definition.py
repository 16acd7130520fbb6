"""A definition in whichever format it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rune.core.errors import DefinitionError, Problem
from rune.core.workflow import Workflow
from rune.formats.document import Document, placed, read
from rune.formats.graph import Registry, check
from rune.formats.report import AT_KEY

__all__ = ["check_definition", "compile_definition", "examine"]


def check_definition(
    data: Mapping[str, Any], registry: Registry, *, definition: bytes = b""
) -> tuple[Workflow | None, list[Problem]]:
    """The workflow of a definition in either format, if it can be run, and every problem, by path."""
    if data.get("kind") == "Playbook" or "apiVersion" in data:
        from rune.formats.playbook.compiling import check_playbook

        return check_playbook(data, registry, definition=definition)
    return check(data, registry, definition=definition)


def compile_definition(definition: bytes, registry: Registry) -> Workflow:
    """The workflow of a definition as it travels; DefinitionError has every problem of it."""
    flow, problems = check_definition(msgspec.json.decode(definition), registry, definition=definition)
    if flow is None:
        raise DefinitionError(problems)
    return flow


def examine(
    text: str | bytes, name: str, registry: Registry, *, compatibility: bool = False
) -> tuple[Document, Workflow | None, list[Problem]]:
    """The workflow in a text, if it can be run, and every problem with its line and column.

    With `compatibility`, a playbook may use the names of older ones.
    """
    document, problems = read(text, name)
    if problems:
        return document, None, problems
    value = {**document.value, "compatibility": True} if compatibility else document.value
    flow, problems = check_definition(value, registry)
    return document, flow, placed(problems, document, AT_KEY) if problems else []
