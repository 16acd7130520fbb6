"""The workflows that a definition calls: found by name, and put into the definition itself.

So a definition is whole: a version never changes, and a worker needs nothing but what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from rune.core.errors import DefinitionError, Problem
from rune.core.playbook.identity import is_playbook
from rune.formats.graph import Registry
from rune.formats.places import Path
from rune.formats.shape import Problems, read_workflow, tidy

__all__ = ["DEEPEST", "Found", "Resolver", "calls_of", "check_calls", "link", "missing"]

DEEPEST = 20
"""Calls inside one another, at most."""
_LARGEST = 8 << 20
"""Bytes of a definition with all that it calls, at most."""

Trail = tuple[tuple[str, str], ...]
"""The workflows that call one another, from the outermost in: what each is, and what it is called."""


class Found(Struct, frozen=True):
    """A workflow that was looked for."""

    definition: Mapping[str, Any]
    identity: str
    """What it is, whatever it is called: a path, or an id."""
    resolver: Resolver | None = None
    """Who finds what it calls itself; None: it carries that already."""


class Resolver(Protocol):
    """Finds workflows by their names."""

    def find(self, name: str) -> Found | None:
        """The workflow of this name; DefinitionError if it cannot be read."""


def calls_of(data: Mapping[str, Any], registry: Registry) -> Iterator[tuple[Path, str]]:
    """Where a definition names workflows that it calls, and which."""
    # What is wrong with the rest is said by whoever compiles it.
    if is_playbook(data):
        from rune.formats.playbook.shape import read_playbook

        written = [
            (f"tool.{task.kind}", task.parameters, task.path)
            for step in read_playbook(data, Problems()).steps
            for task in step.tasks
        ]
    else:
        written = [
            (node.type, node.parameters, (*node.path, "parameters"))
            for node in read_workflow(data, Problems()).nodes
        ]
    for name, parameters, path in written:
        type = registry.get(name)
        if type is not None and type.calls and isinstance(called := parameters.get(type.calls), str):
            yield (*path, type.calls), called


def check_calls(
    data: Mapping[str, Any],
    registry: Registry,
    check: Callable[[Mapping[str, Any]], list[Problem]],
    depth: int,
) -> list[Problem]:
    """What is wrong with the calls of a definition, and with what it carries, which `check` looks at."""
    carried = data.get("workflows")
    if carried is not None and not (
        isinstance(carried, dict) and all(isinstance(each, dict) for each in carried.values())
    ):
        return [
            Problem("E010", "'workflows' must be an object with a definition for each name", ("workflows",))
        ]
    workflows: dict[str, Any] = carried or {}
    problems = missing(data, registry)
    if workflows and depth == DEEPEST:
        return [*problems, Problem("E053", f"more than {DEEPEST} calls inside one another", ("workflows",))]
    places = _places(calls_of(data, registry))
    for name, definition in workflows.items():
        wrong = [problem for problem in check(definition) if problem.severity == "error"]
        if wrong:
            problems.append(_inside(wrong[0], places.get(name, ("workflows", name)), name))
    return problems


def missing(data: Mapping[str, Any], registry: Registry) -> list[Problem]:
    """A problem for each call of what the definition does not carry."""
    carried = data.get("workflows")
    known = carried if isinstance(carried, dict) else {}
    return [_missing(path, name) for path, name in calls_of(data, registry) if name not in known]


def _missing(path: Path, name: str) -> Problem:
    hint = "a file beside this one, or the id or the name of a stored workflow that is published"
    if "{{" in name or name.startswith("$"):
        hint = "write the name itself: what is called becomes part of the definition"
    return Problem("E050", f"there is no workflow {name!r} to call", path, hint)


def link(
    data: Mapping[str, Any], registry: Registry, resolver: Resolver, itself: tuple[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """The definition with all that it calls in it, as far as that is found; `itself`: its identity and name.

    What is not found stays as it was: perhaps the definition carries it already.
    """
    return _Linker(registry).link(data, resolver, (itself,))


class _Linker:
    """Links a definition and what it calls, each once: one that two others call is found by both."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[str, tuple[Mapping[str, Any], list[Problem]]] = {}

    def link(
        self, data: Mapping[str, Any], resolver: Resolver, trail: Trail
    ) -> tuple[dict[str, Any], list[Problem]]:
        carried = data.get("workflows")
        workflows = dict(carried) if isinstance(carried, dict) else {}
        problems: list[Problem] = []
        size = 0
        for name, path in _places(calls_of(data, self._registry)).items():
            try:
                found = resolver.find(name)
            except DefinitionError as error:
                problems.append(_inside(error.problems[0], path, name))
                continue
            if found is None:
                continue
            workflows[name], flaws = self._called(found, name, trail)
            problems += [_inside(flaw, path, name) for flaw in flaws]
            size += 0 if flaws else len(msgspec.json.encode(workflows[name]))
            if size > _LARGEST:
                message = f"with all that it calls the definition has more than {_LARGEST >> 20} MiB"
                problems.append(Problem("E053", message, path))
                break
        return ({**data, "workflows": workflows} if workflows else dict(data)), problems

    def _called(self, found: Found, name: str, trail: Trail) -> tuple[Mapping[str, Any], list[Problem]]:
        """A workflow that is called, with all that it calls in turn."""
        trail = (*trail, (found.identity, name))
        circle = _circle(trail, found)
        if circle:
            return found.definition, [Problem("E051", f"the calls go in a circle: {' → '.join(circle)}", ())]
        if len(trail) > DEEPEST + 1:
            return found.definition, [Problem("E053", f"more than {DEEPEST} calls inside one another", ())]
        definition = _named(found.definition, name)
        if found.resolver is None:
            return definition, []
        if found.identity not in self._known:
            self._known[found.identity] = self.link(definition, found.resolver, trail)
        return self._known[found.identity]


def _places(calls: Iterable[tuple[Path, str]]) -> dict[str, Path]:
    """The names that are called, and where each is named first."""
    places: dict[str, Path] = {}
    for path, name in calls:
        places.setdefault(name, path)
    return places


def _circle(trail: Trail, found: Found) -> list[str]:
    """The names of workflows that lead from one to itself."""
    before = {identity for identity, _ in trail[:-1] if identity}
    inner = _ways(found.definition) if found.resolver is None else ()
    for whole in (trail, *((*trail, *way) for way in inner)):
        if whole[-1][0] in before:
            return [name for _, name in whole]
    return []


def _ways(definition: Mapping[str, Any]) -> Iterator[Trail]:
    """Every way into what a definition carries."""
    carried = definition.get("workflows")
    for name, inner in carried.items() if isinstance(carried, dict) else ():
        if isinstance(inner, dict):
            first = (_identity_of(inner), name)
            yield (first,)
            for way in _ways(inner):
                yield (first, *way)


def _identity_of(definition: Mapping[str, Any]) -> str:
    """The id that a definition gives itself."""
    if not is_playbook(definition):
        return str(definition.get("workflow_id") or "")
    metadata = definition.get("metadata")
    return tidy(str(metadata.get("name") or "")) if isinstance(metadata, dict) else ""


def _named(definition: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A graph without an id gets the name by which it is called: so its executions can be told apart."""
    if is_playbook(definition) or definition.get("workflow_id") or definition.get("name"):
        return dict(definition)
    return {**definition, "workflow_id": tidy(name) or "workflow"}


def _inside(problem: Problem, path: Path, name: str) -> Problem:
    """A problem of what is called, told where it is called."""
    if problem.code in ("E051", "E053"):
        return Problem(problem.code, problem.message, path, problem.hint)
    where = f" (line {problem.line})" if problem.line else ""
    return Problem(
        "E052", f"the workflow {name!r} cannot be run: {problem.message}{where}", path, problem.hint
    )
