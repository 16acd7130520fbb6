"""A step of a playbook, compiled: its tasks, their rules, its loop and its arcs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from rune.core.expressions import ExpressionError, Template, truth
from rune.core.expressions.paths import Scope
from rune.core.workflow import Retry

__all__ = ["Arc", "Directive", "Loop", "Program", "Reducer", "Rule", "Task", "Written", "holds"]

Directive = Literal["continue", "retry", "jump", "break", "fail"]
Written = Literal["iter", "vars", "ctx", "prev", "shared"]
Reducer = Literal["sum", "min", "max", "append", "merge"]


class Rule(Struct, frozen=True):
    """One rule of an `eval`: if `when` holds, write, then go where `do` says."""

    when: Template | None
    """None is `else`."""
    do: Directive = "continue"
    to: str = ""
    retry: Retry = Retry(3)
    writes: Mapping[Written, Template] = {}


class Task(Struct, frozen=True):
    """One labelled task of a pipeline."""

    label: str
    kind: str
    parameters: Any
    """The compiled Parameters of its tool."""
    rules: Sequence[Rule] = ()


class Loop(Struct, frozen=True):
    """What a step runs its pipeline for."""

    source: Template
    iterator: str
    parallel: bool = False
    in_flight: int = 1
    key: Template | None = None
    """Over an element: what it is called; without one, by its index."""


class Arc(Struct, frozen=True):
    """One entry of `next`; the edge of the graph that it became is its name."""

    edge: str
    step: str
    when: Template | None = None
    args: Template | None = None


class Program(Struct, frozen=True, kw_only=True):
    """A whole step."""

    step: str
    tasks: Sequence[Task] = ()
    when: Template | None = None
    args: Template | None = None
    loop: Loop | None = None
    arcs: Sequence[Arc] = ()
    inclusive: bool = False
    must_go_on: bool = False
    """A token that finds no arc is an error."""
    timeout: float | None = None
    reducers: Mapping[str, Reducer] = {}
    """What its iterations may share, and how it is folded."""
    vars: Mapping[str, Any] = {}
    """What `vars` starts with."""
    reads: frozenset[str] = frozenset()
    """The names that its tasks, arguments, guards, arcs and key read; those of `loop.in` are not here."""
    writes_ctx: bool = False
    """Some step of the playbook writes `ctx`, which all tokens share."""
    old_names: bool = False
    """Accept the names of older playbooks: a bare iterator, `input_data`."""


def holds(guard: Template | None, scope: Scope) -> bool:
    """Whether a guard lets through; one that cannot be evaluated does not, and none at all does."""
    if guard is None:
        return True
    try:
        return truth(guard.resolve(scope), words=True)
    except ExpressionError:
        return False
