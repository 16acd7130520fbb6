"""The JSON graph (RFC 001 to 006) as a Workflow, or everything that is wrong with it at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from rune.core.errors import DefinitionError, Problem
from rune.core.fitting import Fitting
from rune.core.node import NodeType, Role
from rune.core.parameters import Dialect, Parameters, compile_parameters
from rune.core.workflow import ErrorPolicy, Node, Retry, Workflow
from rune.formats.checks import check_joins, check_ways
from rune.formats.document import Document, placed, read
from rune.formats.edges import read_edges
from rune.formats.references import check_references
from rune.formats.report import AT_KEY
from rune.formats.shape import Problems, RawNode, RawWorkflow, read_workflow

__all__ = ["Registry", "check", "compile_workflow", "examine", "load_workflow"]

# With one of these, what the graph shows is not what was meant, and would only mislead.
_BREAKS_GRAPH = {"E010", "E011", "E018", "E019", "E020"}


class Registry(Protocol):
    """The node types there are."""

    def get(self, name: str) -> type[NodeType] | None:
        """The type of this name."""

    def names(self) -> Iterable[str]:
        """Every name."""

    def family(self, prefix: str) -> list[str]:
        """The names below a prefix such as `tool`, without it."""

    def suggest(self, name: str) -> str | None:
        """The name that was probably meant."""


class _RetryShape(msgspec.Struct):
    attempts: Annotated[int, Meta(ge=1, le=1000)] = 1
    delay: Annotated[float, Meta(ge=0)] = 0.0
    backoff: Literal["fixed", "linear", "exponential"] = "fixed"
    max_delay: Annotated[float, Meta(ge=0)] = 3600.0


def check(
    data: Mapping[str, Any], registry: Registry, *, definition: bytes = b""
) -> tuple[Workflow | None, list[Problem]]:
    """The workflow, if it can be run, and every problem, by path."""
    problems = Problems()
    raw = read_workflow(data, problems)
    types = _types(raw, registry, problems)
    edges = read_edges(raw, types, problems)
    nodes = _nodes(raw, types, problems)
    flow = Workflow(raw.id, nodes, edges, name=raw.name, definition=definition or msgspec.json.encode(data))
    _check_whole(flow, raw, problems)
    return (None if problems.errors else flow), problems.found


def compile_workflow(data: Mapping[str, Any], registry: Registry, *, definition: bytes = b"") -> Workflow:
    """The workflow; DefinitionError has every problem of it."""
    flow, problems = check(data, registry, definition=definition)
    if flow is None:
        raise DefinitionError(problems)
    return flow


def examine(
    text: str | bytes, name: str, registry: Registry
) -> tuple[Document, Workflow | None, list[Problem]]:
    """The workflow in a text, if it can be run, and every problem with its line and column."""
    document, problems = read(text, name)
    if problems:
        return document, None, problems
    flow, problems = check(document.value, registry)
    return document, flow, placed(problems, document, AT_KEY) if problems else []


def load_workflow(source: os.PathLike[str] | str | bytes, registry: Registry, *, name: str = "") -> Workflow:
    """The workflow in a file (given as a path) or in a text; DefinitionError has every problem, placed."""
    if isinstance(source, os.PathLike):
        name = name or os.fspath(source)
        with open(source, "rb") as file:
            source = file.read()
    name = name or "workflow"
    _, flow, problems = examine(source, name, registry)
    if flow is None:
        raise DefinitionError(problems, name)
    return flow


def _types(raw: RawWorkflow, registry: Registry, problems: Problems) -> dict[str, type[NodeType]]:
    """The types of the nodes, by node; a node of an unknown type is left out."""
    types: dict[str, type[NodeType]] = {}
    seen: set[str] = set()
    for node in raw.nodes:
        if node.id and node.id in seen:
            problems.error("E018", f"two nodes have the id {node.id!r}", (*node.path, "id"))
        seen.add(node.id)
        type = registry.get(node.type)
        if type is not None:
            types.setdefault(node.id, type)
        elif node.type:
            meant = registry.suggest(node.type)
            hint = f"did you mean {meant!r}?" if meant else "`rune nodes` lists the types there are"
            problems.error("E016", f"unknown node type {node.type!r}", (*node.path, "type"), hint)
    return types


def _nodes(raw: RawWorkflow, types: Mapping[str, type[NodeType]], problems: Problems) -> list[Node]:
    aliases = _aliases(raw, problems)
    made: dict[str, Node] = {}
    for node in raw.nodes:
        if node.id in made:
            continue
        # A node of unknown type still has its place in the graph.
        type = types.get(node.id, NodeType)
        parameters = _parameters(node, type, aliases, problems) if node.id in types else None
        made[node.id] = Node(
            node.id,
            node.name,
            type,
            parameters,
            ErrorPolicy(node.error_type),
            _retry(node, problems),
            node.credentials,
            node.trigger or type.trigger,
            type.pure and parameters is not None and parameters.deterministic,
            node.pool,
        )
    return list(made.values())


def _aliases(raw: RawWorkflow, problems: Problems) -> dict[str, str]:
    """Names that expressions may use for ids."""
    ids = {node.id for node in raw.nodes}
    aliases: dict[str, str] = {}
    for node in raw.nodes:
        if node.name == node.id:
            continue
        other = node.name if node.name in ids else aliases.get(node.name)
        if other is None:
            aliases[node.name] = node.id
        elif other != node.id:
            message = (
                f"{node.name!r} names {other!r} and {node.id!r}; an expression that says it means {other!r}"
            )
            problems.warn("W007", message, (*node.path, "name"))
    return aliases


def _parameters(
    node: RawNode, type: type[NodeType], aliases: Mapping[str, str], problems: Problems
) -> Parameters | None:
    path = (*node.path, "parameters")
    parameters, found = compile_parameters(type, node.parameters, dialect=Dialect(aliases), path=path)
    problems.found += found
    if parameters and parameters.constant is None and type.role in (Role.GATHER, Role.MERGE):
        message = f"the parameters of {node.id!r} must be known before it runs: no templates in {type.name}"
        problems.error("E034", message, path)
    return parameters


def _retry(node: RawNode, problems: Problems) -> Retry | None:
    if node.retry is None:
        return None
    fitting = Fitting(lambda text, path: text, lambda text, path: False)
    fitting.walk(dict(node.retry), _RetryShape, ())
    for misfit in fitting.misfits:
        where = ".".join(map(str, ("retry", *misfit.path)))
        problems.error(
            "E032", f"{where!r} {misfit.message}", (*node.path, "retry", *misfit.path), misfit.hint
        )
    if fitting.misfits:
        return None
    shape = msgspec.convert(node.retry, _RetryShape, strict=False)
    return Retry(shape.attempts, shape.delay, shape.backoff, shape.max_delay)


def _check_whole(flow: Workflow, raw: RawWorkflow, problems: Problems) -> None:
    """What shows only in the graph, as far as the graph is the one that was meant."""
    codes = {problem.code for problem in problems.found}
    if codes & _BREAKS_GRAPH:
        return
    countable = check_ways(flow, raw, problems)
    if countable and "E016" not in codes:
        check_joins(flow, raw, problems)
    if not problems.errors:
        check_references(flow, raw, problems)
