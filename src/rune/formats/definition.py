"""A definition in whichever format it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rune.core.errors import DefinitionError, Problem
from rune.core.playbook.identity import is_playbook
from rune.core.workflow import Workflow
from rune.formats.document import Document, placed, read
from rune.formats.graph import Registry, check
from rune.formats.linking import Resolver, check_calls, link, missing
from rune.formats.report import AT_KEY

__all__ = ["check_definition", "check_linked", "compile_definition", "examine"]


def check_definition(
    data: Mapping[str, Any], registry: Registry, *, definition: bytes = b"", depth: int = 0
) -> tuple[Workflow | None, list[Problem]]:
    """The workflow of a definition in either format, if it can be run, and every problem, by path.

    `depth` is how many calls it is inside of.
    """

    def inner(called: Mapping[str, Any]) -> list[Problem]:
        return check_definition(called, registry, depth=depth + 1)[1]

    flow, problems = _check_alone(data, registry, definition)
    wrong = check_calls(data, registry, inner, depth)
    return (None if wrong else flow), [*problems, *wrong]


def _check_alone(
    data: Mapping[str, Any], registry: Registry, definition: bytes = b""
) -> tuple[Workflow | None, list[Problem]]:
    """The same, but for what it calls."""
    if is_playbook(data):
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
    text: str | bytes,
    name: str,
    registry: Registry,
    *,
    compatibility: bool = False,
    resolver: Resolver | None = None,
    identity: str = "",
) -> tuple[Document, Workflow | None, list[Problem]]:
    """The workflow in a text, if it can be run, and every problem with its line and column.

    With `compatibility`, a playbook may use the names of older ones. The `resolver` finds what it calls, and
    knows it as `identity`.
    """
    document, problems = read(text, name)
    if problems:
        return document, None, problems
    value = {**document.value, "compatibility": True} if compatibility else document.value
    flow, problems = check_linked(value, registry, resolver, (identity, name))
    return document, flow, placed(problems, document, AT_KEY) if problems else []


def check_linked(
    value: dict[str, Any], registry: Registry, resolver: Resolver | None, itself: tuple[str, str]
) -> tuple[Workflow | None, list[Problem]]:
    """The workflow of a definition with all that the `resolver` finds of what it calls, and every problem."""
    if resolver is None:
        return check_definition(value, registry)
    linked, problems = link(value, registry, resolver, itself)
    if not problems:
        return check_definition(linked, registry)
    # What is called is wrong as it is: there is no use in looking into it.
    told = {problem.path for problem in problems}
    others = [*_check_alone(value, registry)[1], *missing(linked, registry)]
    return None, [*problems, *(problem for problem in others if problem.path not in told)]
