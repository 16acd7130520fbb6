"""References that lead nowhere as far as the graph can tell: warnings, for the caller may add names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from rune.core.expressions import suggest
from rune.core.node import Role
from rune.core.paths import scoping, topological
from rune.core.workflow import Node, Workflow
from rune.formats.places import Path
from rune.formats.shape import Problems, RawWorkflow

__all__ = ["BUILTIN", "check_references"]

BUILTIN = frozenset(
    f"${name}"
    for name in (
        *("item", "index", "items", "trigger", "input", "json", "previous"),
        *("error", "execution", "workflow", "node", "resume"),
    )
)
"""Names that mean something wherever an expression stands."""


def check_references(flow: Workflow, raw: RawWorkflow, problems: Problems) -> None:
    """Warn of names that no node has, and of nodes whose output is not there yet or no longer."""
    _References(flow, problems).check(raw)


class _References:
    def __init__(self, flow: Workflow, problems: Problems) -> None:
        self._flow = flow
        self._problems = problems

    def check(self, raw: RawWorkflow) -> None:
        for written in raw.nodes:
            node = self._flow.nodes[written.id]
            for name in sorted(node.parameters.names - BUILTIN):
                if not name.startswith("$"):
                    continue
                parameters = (written.parameters, (*written.path, "parameters"))
                if name[1:] in self._flow.nodes:
                    self._known(node, name[1:], *parameters)
                else:
                    self._unknown(node, name, *parameters)

    def _unknown(self, node: Node, name: str, parameters: Mapping[str, Any], path: Path) -> None:
        where, offset, text = _find(parameters, path, [name])
        meant = suggest(name, [*(f"${id}" for id in self._flow.nodes), *BUILTIN])
        meant_as_one = "{{" in text[:offset] or any(text == e.source for e in node.parameters.expressions)
        if not meant and not meant_as_one:
            return  # "costs $5" is text
        if meant and "-" in meant:
            meant = f'$node["{meant[1:]}"]'  # a dash after a name is a minus
        hint = f"did you mean {meant}?" if meant else "an execution must be given it in its context"
        self._problems.warn("W005", f"no node is called {name[1:]!r}", where, hint, offset)

    def _known(self, node: Node, id: str, parameters: Mapping[str, Any], path: Path) -> None:
        trouble = self._trouble(node, id)
        if trouble:
            name = self._flow.nodes[id].name
            spelt = [
                f"${id}",
                f"$node.{id}",
                f'$node["{name}"]',
                f"$node['{name}']",
                f"$node.{name}",
                f"${name}",
            ]
            where, offset, _ = _find(parameters, path, spelt)
            self._problems.warn("W006", trouble, where, None, offset)

    def _trouble(self, node: Node, id: str) -> str | None:
        if id == node.id:
            return f"{id!r} refers to its own output, which is not there before it has run"
        if self._flow.nodes[id].trigger:
            return None
        if not self._before[node.id] >> self._number[id] & 1:
            return f"{id!r} has never run when {node.id!r} does"
        scope = self._scope[id]
        if self._flow.nodes[id].role is Role.GATHER:
            scope = scope[:-1]
        if self._scope[node.id][: len(scope)] != scope:
            return (
                f"what {id!r} gives stays inside split {scope[-1]!r}; take it from what its aggregator gives"
            )
        return None

    @cached_property
    def _scope(self) -> Mapping[str, tuple[str, ...]]:
        return scoping(self._flow).scope

    @cached_property
    def _number(self) -> Mapping[str, int]:
        return {id: number for number, id in enumerate(self._flow.nodes)}

    @cached_property
    def _before(self) -> Mapping[str, int]:
        """For each node, those that may run before it, as bits: a thousand nodes have a million pairs."""
        before: dict[str, int] = {}
        for id in topological(self._flow):
            bits = 0
            for edge in self._flow.incoming[id]:
                bits |= before[edge.src] | 1 << self._number[edge.src]
            before[id] = bits
        return before


def _find(parameters: Any, path: Path, spelt: list[str]) -> tuple[Path, int, str]:
    """Where in the parameters one of these spellings stands, and the text it stands in."""
    for where, text in _texts(parameters, path):
        for spelling in spelt:
            at = text.find(spelling)
            if at >= 0:
                return where, at, text
    return path, 0, ""


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _texts(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _texts(part, (*path, index))
