"""The tasks of a playbook's steps, compiled: parameters of tools, and the rules of `eval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from rune.core.expressions import ExpressionError, Template, suggest
from rune.core.fitting import show
from rune.core.parameters import Dialect, compile_parameters
from rune.core.playbook.program import Directive, Rule, Task, Written
from rune.core.workflow import Retry
from rune.formats.graph import Registry
from rune.formats.places import Path
from rune.formats.playbook.tasks import RawTask
from rune.formats.shape import Problems

__all__ = ["DIALECT", "compile_task", "template"]

DIALECT = Dialect(lenient=True, references=False)
"""Playbooks write `{{ }}`; what is not there is undefined."""

_DIRECTIVES = get_args(Directive)
_WRITES: tuple[Written, ...] = get_args(Written)
_BACKOFFS = ("fixed", "linear", "exponential")
_RULE = ("expr", "else", "do", "to", "attempts", "backoff", "delay", *(f"set_{where}" for where in _WRITES))


def template(value: Any, path: Path, problems: Problems) -> Template | None:
    """A value with its `{{ }}` compiled; None where there is none, or where it cannot be."""
    if value is None:
        return None
    try:
        return DIALECT.template(value)
    except ExpressionError as error:
        problems.broken(error, path)
        return None


def compile_task(raw: RawTask, labels: set[str], registry: Registry, problems: Problems) -> Task | None:
    """One task; None where something is wrong with it."""
    tool = registry.get(f"tool.{raw.kind}") if raw.kind else None
    rules = [_rule(rule, path, labels, problems) for rule, path in raw.rules]
    _check_order(raw, problems)
    if tool is None:
        if raw.kind:
            meant = suggest(raw.kind, registry.family("tool"))
            hint = f"did you mean {meant!r}?" if meant else None
            problems.error("E044", f"unknown tool kind {raw.kind!r}", (*raw.path, "kind"), hint)
        return None
    parameters, found = compile_parameters(tool, raw.parameters, dialect=DIALECT, path=raw.path)
    problems.found += found
    if parameters is None or None in rules:
        return None
    return Task(raw.label, raw.kind, parameters, [rule for rule in rules if rule is not None])


def _check_order(raw: RawTask, problems: Problems) -> None:
    for index, (rule, path) in enumerate(raw.rules):
        if "else" in rule and index < len(raw.rules) - 1:
            problems.error("E046", "`else` comes last: the rules after it are never looked at", path)


def _rule(raw: Mapping[str, Any], path: Path, labels: set[str], problems: Problems) -> Rule | None:
    before = problems.errors
    body, where = raw, path
    if "else" in raw:
        inner = raw["else"]
        body, where = (inner if isinstance(inner, dict) else {}), (*path, "else")
        if not isinstance(inner, dict):
            problems.error("E046", f"`else` is an object with `do`, not {show(inner)}", where)
    elif "expr" not in raw:
        problems.error("E046", "a rule has `expr`, or is `else`", path)
    for name in body:
        if name not in _RULE:
            problems.error("E046", f"unknown field {name!r} of a rule", (*where, name), _meant(name))
    when = template(raw["expr"], (*path, "expr"), problems) if "expr" in raw else None
    do = body.get("do", "continue")
    if do not in _DIRECTIVES:
        problems.error("E046", f"unknown `do`: {show(do)}", (*where, "do"), ", ".join(_DIRECTIVES))
    to = body.get("to", "")
    if do == "jump" and to not in labels:
        message = (
            f"`jump` leads to {show(to)}, which is no task of this pipeline" if to else "`jump` needs `to`"
        )
        problems.error("E046", message, (*where, "to") if to else where)
    retry = _retry(body, where, problems)
    writes = _writes(body, where, problems)
    if problems.errors > before:
        return None
    return Rule(when, do, to, retry, writes)


def _meant(name: str) -> str | None:
    found = suggest(name, _RULE)
    return f"did you mean {found!r}?" if found else None


def _retry(body: Mapping[str, Any], path: Path, problems: Problems) -> Retry:
    attempts, delay = body.get("attempts", 3), body.get("delay", 0.0)
    backoff = body.get("backoff", "fixed")
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        problems.error(
            "E046", f"`attempts` is a count of at least 1, not {show(attempts)}", (*path, "attempts")
        )
        attempts = 1
    if not isinstance(delay, int | float) or isinstance(delay, bool) or delay < 0:
        problems.error("E046", f"`delay` is in seconds, not {show(delay)}", (*path, "delay"))
        delay = 0.0
    if backoff not in _BACKOFFS:
        problems.error(
            "E046", f"unknown `backoff`: {show(backoff)}", (*path, "backoff"), ", ".join(_BACKOFFS)
        )
        backoff = "fixed"
    return Retry(attempts, float(delay), backoff)


def _writes(body: Mapping[str, Any], path: Path, problems: Problems) -> Mapping[Written, Template]:
    found: dict[Written, Template] = {}
    for where in _WRITES:
        name = f"set_{where}"
        if name not in body:
            continue
        value = body[name]
        if where != "prev" and not isinstance(value, dict | str):
            problems.error("E046", f"`{name}` gives values by name, not {show(value)}", (*path, name))
        elif (made := template(value, (*path, name), problems)) is not None:
            found[where] = made
    return found
