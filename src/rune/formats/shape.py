"""The shape of a JSON workflow: every field read with its type, every problem kept with its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rune.core.errors import Problem
from rune.core.expressions import ExpressionError, suggest
from rune.core.fitting import show
from rune.core.ids import EVERYBODY, POOL
from rune.formats.places import Path

__all__ = ["Fields", "Problems", "RawEdge", "RawNode", "RawWorkflow", "read_workflow", "tidy"]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,200}")

_WORKFLOW = ("workflow_id", "execution_id", "name", "pool", "nodes", "edges", "notes", "workflows")
_NODE = (
    "id",
    "name",
    "type",
    "trigger",
    "parameters",
    "credentials",
    "error",
    "retry",
    "pool",
    "output",
    "position",
)
_EDGE = ("id", "src", "dst", "port", "is_error", "label")


class RawEdge(msgspec.Struct, frozen=True):
    """An edge as written."""

    path: Path
    id: str
    src: str
    dst: str
    port: str
    is_error: bool
    label: str


class RawNode(msgspec.Struct, frozen=True):
    """A node as written."""

    path: Path
    id: str
    name: str
    type: str
    trigger: bool
    parameters: Mapping[str, Any]
    credentials: str | None
    error_type: str
    error_edge: str
    retry: Mapping[str, Any] | None
    pool: str


class RawWorkflow(msgspec.Struct, frozen=True):
    """A workflow as written; nodes and edges that make no sense at all are left out."""

    id: str
    name: str
    nodes: list[RawNode]
    edges: list[RawEdge]


class Problems:
    """What is wrong, in the order it was found."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def error(self, code: str, message: str, path: Path, hint: str | None = None) -> None:
        self.found.append(Problem(code, message, path, hint))

    def warn(self, code: str, message: str, path: Path, hint: str | None = None, offset: int = 0) -> None:
        self.found.append(Problem(code, message, path, hint, "warning", offset))

    def broken(self, error: ExpressionError, path: Path) -> None:
        """An expression in the text at `path` that cannot be compiled."""
        where = (*path, *error.where)
        self.found.append(Problem("E015", error.message, where, error.hint, offset=error.offset or 0))

    @property
    def errors(self) -> int:
        """How many of them are errors."""
        return sum(problem.severity == "error" for problem in self.found)


class Fields:
    """One object of the definition, whose fields are read by type."""

    def __init__(self, value: Mapping[str, Any], path: Path, problems: Problems) -> None:
        self.value = value
        self.path = path
        self.problems = problems

    def text(self, name: str, what: str = "") -> str:
        """A text; required where `what` says of what."""
        value = self.value.get(name)
        if isinstance(value, str):
            if what and not value:
                self.problems.error("E011", f"the {name!r} of {what} is empty", (*self.path, name))
            return value
        if value is not None:
            self._wrong(name, "text", value)
        elif what:
            self.problems.error("E011", f"{what} has no {name!r}", self.path)
        return ""

    def identifier(self, name: str, what: str = "") -> str:
        """A text that can stand in keys and addresses."""
        value = self.text(name, what)
        if value and not _ID.fullmatch(value):
            message = (
                f"an id holds only letters, digits, '-' and '_', and at most 200 of them, not {show(value)}"
            )
            self.problems.error("E017", message, (*self.path, name), f"write {tidy(value)!r}")
        return value

    def pool(self, default: str = "") -> str:
        """The name of a pool of workers; empty is everybody's."""
        if self.value.get("pool") is None:
            return default
        name = self.text("pool")
        if not name or name == EVERYBODY:
            return ""
        if not re.fullmatch(POOL, name):
            hint = "use letters, digits, '-' and '_'; not dead, dlx or retry"
            self.problems.error("E036", f"{show(name)} cannot be a pool's name", (*self.path, "pool"), hint)
        return name

    def flag(self, name: str) -> bool:
        """True or false; false if not given."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, bool):
            self._wrong(name, "true or false", value)
        return value is True

    def object(self, name: str) -> Mapping[str, Any] | None:
        """An object, or None if not given."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, dict):
            self._wrong(name, "an object", value)
        return value if isinstance(value, dict) else None

    def objects(self, name: str) -> Iterator[tuple[Mapping[str, Any], Path]]:
        """The objects of a list, each with its path."""
        value = self.value.get(name)
        if value is not None and not isinstance(value, list):
            self._wrong(name, "a list", value)
            return
        for index, item in enumerate(value or ()):
            path = (*self.path, name, index)
            if isinstance(item, dict):
                yield item, path
            else:
                self.problems.error("E010", f"each of {name!r} must be an object, not {show(item)}", path)

    def spelling(self, known: tuple[str, ...]) -> None:
        """Warn of a field that is not known but nearly is: other ones are kept and ignored."""
        free = [name for name in known if name not in self.value]
        for name in self.value:
            if name not in known and (meant := suggest(name, free)):
                self.problems.warn(
                    "W009",
                    f"unknown field {name!r} is ignored",
                    (*self.path, name),
                    f"did you mean {meant!r}?",
                )

    def _wrong(self, name: str, expected: str, value: Any) -> None:
        message = f"{name!r} must be {expected}, not {show(value)}"
        self.problems.error("E010", message, (*self.path, name))


def read_workflow(data: Mapping[str, Any], problems: Problems) -> RawWorkflow:
    """Read the whole definition."""
    fields = Fields(data, (), problems)
    fields.spelling(_WORKFLOW)
    id = fields.identifier("workflow_id")
    name = fields.text("name")
    pool = fields.pool()
    if "nodes" not in data:
        problems.error("E011", "the workflow has no 'nodes'", ())
    nodes = [_read_node(item, path, problems, pool) for item, path in fields.objects("nodes")]
    edges = [_read_edge(item, path, problems) for item, path in fields.objects("edges")]
    return RawWorkflow(id or tidy(name) or "workflow", name, nodes, edges)


def _read_node(value: Mapping[str, Any], path: Path, problems: Problems, pool: str) -> RawNode:
    fields = Fields(value, path, problems)
    fields.spelling(_NODE)
    id = fields.identifier("id", "a node")
    error = Fields(fields.object("error") or {}, (*path, "error"), problems)
    return RawNode(
        path,
        id,
        fields.text("name") or id,
        fields.text("type", f"node {id!r}"),
        fields.flag("trigger"),
        fields.object("parameters") or {},
        _credentials(fields),
        error.text("type") or "halt",
        error.text("error_edge"),
        fields.object("retry"),
        fields.pool(pool),
    )


def _credentials(fields: Fields) -> str | None:
    found = fields.object("credentials")
    if not found:
        return None
    inner = Fields(found, (*fields.path, "credentials"), fields.problems)
    if "values" in found:
        # Never shown: whoever reads the message should not read the secret.
        hint = 'store the secret under an id, and keep only {"id": …} here'
        fields.problems.error(
            "E031", "a definition must not carry a credential's values", (*inner.path, "values"), hint
        )
    if isinstance(found.get("id"), int) and not isinstance(found["id"], bool):
        return str(found["id"])
    return inner.text("id", "'credentials'") or None


def _read_edge(value: Mapping[str, Any], path: Path, problems: Problems) -> RawEdge:
    fields = Fields(value, path, problems)
    fields.spelling(_EDGE)
    id = fields.identifier("id", "an edge")
    # RFC 001 §7.3 compares `is_error` with the text "error".
    is_error = value.get("is_error") == "error" or fields.flag("is_error")
    what = f"edge {id!r}"
    return RawEdge(
        path,
        id,
        fields.text("src", what),
        fields.text("dst", what),
        fields.text("port"),
        is_error,
        fields.text("label"),
    )


def tidy(text: str) -> str:
    """The nearest text that may be an id."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", text).strip("-")[:200]
