"""Problems as a person reads them: file, line, column, code, message, hint, and the line with a caret."""

from __future__ import annotations

from collections.abc import Iterable

from rune.core.errors import Problem
from rune.formats.document import Document, placed

__all__ = ["AT_KEY", "CODES", "render"]

CODES: dict[str, str] = {
    "E001": "The file is not UTF-8 text.",
    "E002": "The JSON is broken.",
    "E003": "The YAML is broken.",
    "E004": "A key stands twice in one object.",
    "E005": "The document is empty.",
    "E006": "The top level is not an object.",
    "E007": "The document is nested too deeply.",
    "E008": "A number is one that JSON cannot hold.",
    "E009": "The YAML uses something that is not accepted here.",
    "E010": "A field is of the wrong type.",
    "E011": "A required field is missing.",
    "E012": "A parameter is unknown, and probably misspelt.",
    "E013": "A required parameter is missing.",
    "E014": "A parameter's value is not of the type it must have.",
    "E015": "An expression cannot be compiled.",
    "E016": "The node type is unknown.",
    "E017": "An id has characters that ids may not have.",
    "E018": "Two nodes have the same id.",
    "E019": "Two edges have the same id.",
    "E020": "An edge leads from or to a node that is not there.",
    "E021": "An edge leads from a node to itself.",
    "E022": "The graph has a cycle.",
    "E023": "There is no node to start with.",
    "E024": "A node names an edge that does not leave it.",
    "E025": "The error policy is unknown.",
    "E026": "A node branches on errors but has no error edge.",
    "E027": "An aggregator stands outside any split.",
    "E028": "Two aggregators close one split.",
    "E029": "A node is reached at two depths of splits.",
    "E030": "Too many paths lead into a merge.",
    "E031": "The definition carries a secret.",
    "E032": "The retry policy is wrong.",
    "E033": "An edge is both an error edge and an ordinary one.",
    "E034": "A join's parameters depend on data.",
    "E035": "A merge waits for more arrivals than can come.",
    "E036": "A pool has a name that pools may not have.",
    "E040": "The document is no playbook that this Rune reads.",
    "E041": "A step that is named is not there, or the routing is wrong.",
    "E042": "Two steps or tasks have the same name.",
    "E043": "A loop is wrong.",
    "E044": "The tool is unknown.",
    "E045": "A pipeline is wrong.",
    "E046": "A rule of `eval` is wrong.",
    "E047": "A write that iterations running side by side must not make.",
    "E048": "A name of older playbooks.",
    "E049": "The policies of a fan-out are wrong.",
    "E050": "A workflow that is called is not there.",
    "E051": "Workflows call one another in a circle.",
    "E052": "A workflow that is called cannot be run.",
    "E053": "Too much is called: calls inside one another, or bytes of all that is called.",
    "W001": "A parameter is unknown and ignored.",
    "W002": "A merge has only one edge into it.",
    "W003": "An edge is never followed.",
    "W004": "A node never runs.",
    "W005": "A reference names no node.",
    "W006": "A reference names a node whose output is not there.",
    "W007": "A name stands for more than one node.",
    "W008": "A trigger has edges into it.",
    "W009": "A field is unknown, and probably misspelt.",
    "W010": "A condition is a text without an expression, and always holds.",
}
"""Every code and what it means. A code never changes its meaning."""

AT_KEY = frozenset({"E012", "W001", "W009"})
"""Codes whose trouble is a key, not its value."""

_WIDEST = 120


def render(problems: Iterable[Problem], document: Document) -> str:
    """All problems in the order of the text, each with its line and a caret."""
    found = placed(list(problems), document, AT_KEY)
    # Where a secret stands in the text, no line of it is shown.
    hidden = any(problem.code == "E031" for problem in found)
    lines = [] if hidden else document.text.split("\n")
    return "\n".join(_one(problem, document, lines) for problem in found)


def _one(problem: Problem, document: Document, lines: list[str]) -> str:
    hint = f"; {problem.hint}" if problem.hint else ""
    place = f"{document.name}:{problem.line}:{problem.column}"
    head = f"{place} {problem.severity}[{problem.code}]: {problem.message}{hint}"
    line, column = problem.line or 1, problem.column or 1
    if line > len(lines) or not lines[line - 1].strip():
        return head
    source, column = _window(lines[line - 1].rstrip("\r"), column)
    return f"{head}\n    {source}\n    {' ' * (column - 1)}^"


def _window(source: str, column: int) -> tuple[str, int]:
    """A long line cut to what stands around the column; characters that would move the caret are replaced."""
    source = "".join(c if c.isprintable() else " " for c in source)
    start = 0
    if len(source) > _WIDEST and column > _WIDEST // 2:
        start = min(column - _WIDEST // 2, max(len(source) - _WIDEST, 0))
    shown = source[start : start + _WIDEST]
    if start:
        shown = "…" + shown[1:]
    if start + _WIDEST < len(source):
        shown = shown[:-1] + "…"
    return shown, column - start
