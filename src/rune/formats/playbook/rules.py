"""The tasks of a playbook's steps, compiled: parameters of tools, and the rules of `eval`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from rune.core.expressions import ExpressionError, Template, suggest
from rune.core.fitting import show
from rune.core.node import NodeType
from rune.core.parameters import Dialect, compile_parameters
from rune.core.playbook.program import Directive, Rule, Task, Written
from rune.core.workflow import Retry
from rune.formats.graph import Registry
from rune.formats.places import Path
from rune.formats.playbook.tasks import RawTask
from rune.formats.shape import Problems

__all__ = ["DIALECT", "check_kind", "compile_task", "guard", "template"]

DIALECT = Dialect(lenient=True, references=False)
"""Playbooks write `{{ }}`; what is not there is undefined."""

_DIRECTIVES = get_args(Directive)
_WRITES: tuple[Written, ...] = get_args(Written)
_WORDS = frozenset({"", "0", "1", "no", "yes", "none", "true", "false"})
"""Texts that are conditions without being expressions."""
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


def guard(value: Any, path: Path, problems: Problems) -> Template | None:
    """A condition, compiled; a text without `{{ }}` says nothing, and is most likely meant to have them."""
    if value is not None and not isinstance(value, str | bool | int | float):
        problems.error("E010", f"a condition is a template, or true or false, not {show(value)}", path)
        return None
    if isinstance(value, str) and "{{" not in value and value.strip().lower() not in _WORDS:
        hint = f"an expression stands in braces: {{{{ {value.strip()} }}}}"
        problems.warn("W010", "the condition is a text, which always holds", path, hint)
    return template(value, path, problems)


def compile_task(raw: RawTask, labels: set[str], registry: Registry, problems: Problems) -> Task | None:
    """One task; None where something is wrong with it."""
    tool = check_kind(raw, registry, problems)
    rules = [_rule(rule, path, labels, problems) for rule, path in raw.rules]
    _check_order(raw, problems)
    if tool is None:
        # What its parameters are nobody knows, but for the expressions in them; code is not one.
        others = {name: value for name, value in raw.parameters.items() if name != "code"}
        template(others, raw.path, problems)
        return None
    parameters, found = compile_parameters(tool, raw.parameters, dialect=DIALECT, path=raw.path)
    problems.found += found
    if parameters is None or None in rules:
        return None
    return Task(raw.label, raw.kind, parameters, [rule for rule in rules if rule is not None])


def check_kind(raw: RawTask, registry: Registry, problems: Problems) -> type[NodeType] | None:
    """The tool of a task; None where there is none of its kind."""
    tool = registry.get(f"tool.{raw.kind}") if raw.kind else None
    if tool is None and raw.kind:
        kinds = registry.family("tool")
        meant = suggest(raw.kind, kinds)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(sorted(kinds))}"
        problems.error("E044", f"unknown tool kind {raw.kind!r}", raw.kind_path, hint)
    return tool


def _check_order(raw: RawTask, problems: Problems) -> None:
    for index, (rule, path) in enumerate(raw.rules):
        if "else" in rule and index < len(raw.rules) - 1:
            problems.error("E046", "`else` comes last: the rules after it are never looked at", path)


def _rule(raw: Mapping[str, Any], path: Path, labels: set[str], problems: Problems) -> Rule | None:
    before = problems.errors
    body, where = _body(raw, path, problems)
    known = _RULE if body is raw else _RULE[2:]
    for name in body:
        if name not in known:
            problems.error("E046", f"unknown field {name!r} of a rule", (*where, name), _meant(name))
    when = guard(raw["expr"], (*path, "expr"), problems) if "expr" in raw else None
    do = body.get("do", "continue")
    if do not in _DIRECTIVES:
        problems.error("E046", f"unknown `do`: {show(do)}", (*where, "do"), ", ".join(_DIRECTIVES))
    to = body.get("to", "")
    if do == "jump":
        _check_jump(to, where, labels, problems)
    retry = _retry(body, where, problems)
    writes = _writes(body, where, problems)
    if problems.errors > before:
        return None
    return Rule(when, do, to, retry, writes)


def _body(raw: Mapping[str, Any], path: Path, problems: Problems) -> tuple[Mapping[str, Any], Path]:
    """What a rule says, and where: `else` has it inside."""
    if "else" not in raw:
        if raw.get("expr") is None:
            problems.error("E046", "a rule has `expr`, or is `else`", path)
        return raw, path
    for name in raw:
        if name != "else":
            problems.error("E046", f"`else` stands alone, without {name!r}", (*path, name))
    body, where = raw["else"], (*path, "else")
    if isinstance(body, dict):
        return body, where
    problems.error("E046", f"`else` is an object with `do`, not {show(body)}", where)
    return {}, where


def _check_jump(to: Any, path: Path, labels: set[str], problems: Problems) -> None:
    hint = f"its tasks are {', '.join(sorted(labels))}"
    if not to:
        problems.error("E046", "`jump` needs `to`", path, hint)
    elif not isinstance(to, str) or to not in labels:
        message = f"`jump` leads to {show(to)}, which is no task of this pipeline"
        problems.error("E046", message, (*path, "to"), hint)


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
        named = isinstance(value, dict) or (isinstance(value, str) and "{{" in value)
        if where != "prev" and not named:
            problems.error("E046", f"`{name}` gives values by name, not {show(value)}", (*path, name))
        elif (made := template(value, (*path, name), problems)) is not None:
            found[where] = made
    return found
