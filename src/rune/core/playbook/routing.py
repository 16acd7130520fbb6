"""Where a token goes when a step has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from rune.core.errors import ErrorInfo
from rune.core.expressions import ExpressionError
from rune.core.playbook.memory import Memory
from rune.core.playbook.program import Arc, Program, holds

__all__ = ["END", "Route", "read_by", "route"]

END = "~end"
"""The port of a token that ends here."""


class Route(Struct, frozen=True):
    """The edges a token goes along, the arguments it takes along each, and the failure nobody met."""

    ports: tuple[str, ...]
    args: dict[str, Any]
    unmet: ErrorInfo | None = None


def read_by(arcs: Iterable[Arc]) -> frozenset[str]:
    """The names that guards and arguments of arcs read."""
    templates = [template for arc in arcs for template in (arc.when, arc.args) if template is not None]
    return frozenset().union(*(template.names for template in templates))


def route(program: Program, memory: Memory, event: str, error: ErrorInfo | None = None) -> Route:
    """The arcs whose guards hold: the first of them, or all."""
    memory.know(event={"name": event})
    taken: list[Arc] = []
    for arc in program.arcs:
        if holds(arc.when, memory):
            taken.append(arc)
            if not program.inclusive:
                break
    if not taken:
        # Told at the end, when the token is elsewhere.
        unmet = msgspec.structs.replace(error, node=program.step) if error else _dead_end(program)
        return Route((END,), {}, unmet)
    args: dict[str, Any] = {}
    try:
        for arc in taken:
            args[arc.edge] = arc.args.resolve(memory) if arc.args is not None else {}
    except ExpressionError as wrong:
        info = ErrorInfo(
            f"step '{program.step}': the args of `next` cannot be evaluated: {wrong}", "PLAYBOOK_ARGS"
        )
        return Route((END,), {}, info)
    return Route(tuple(arc.edge for arc in taken), args)


def _dead_end(program: Program) -> ErrorInfo | None:
    if not program.must_go_on:
        return None
    return ErrorInfo(
        f"step '{program.step}' ended and no arc of its `next` was taken, which `no_next_is_error` forbids",
        "PLAYBOOK_NO_NEXT",
    )
