"""The tasks and the arcs of a step, as written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rune.core.expressions import suggest
from rune.core.fitting import show
from rune.formats.places import Path
from rune.formats.shape import Fields, Problems

__all__ = ["RawArc", "RawTask", "Workbook", "read_arcs", "read_tasks", "read_workbook"]

_ABOUT = ("kind", "eval", "desc", "case")
"""What a task says besides the parameters of its tool."""


class RawTask(Struct, frozen=True):
    """A task as written."""

    path: Path
    label: str
    kind: str
    kind_path: Path
    parameters: Mapping[str, Any]
    rules: list[tuple[Mapping[str, Any], Path]]


Workbook = Mapping[str, RawTask]
"""The named tasks that `kind: workbook` stands for."""


class RawArc(Struct, frozen=True):
    """An entry of `next` as written."""

    path: Path
    step: str
    when: Any = None
    args: Any = None


def read_workbook(fields: Fields) -> Workbook:
    """The named tasks that `kind: workbook` stands for."""
    found: dict[str, RawTask] = {}
    for item, path in fields.objects("workbook"):
        outer = Fields(item, path, fields.problems)
        name = outer.text("name", "a task of the workbook")
        if name in found:
            fields.problems.error("E042", f"two tasks of the workbook are called {name!r}", (*path, "name"))
        tool = outer.object("tool")
        written = {key: value for key, value in item.items() if key != "name"} if tool is None else tool
        at = path if tool is None else (*path, "tool")
        found[name] = _task(name, written, at, fields.problems, {})
    return found


def read_tasks(fields: Fields, workbook: Workbook) -> Iterator[RawTask]:
    """The tasks of a pipeline; a single tool is a pipeline of one."""
    tool, path, problems = fields.value.get("tool"), (*fields.path, "tool"), fields.problems
    if tool is None:
        return
    if isinstance(tool, dict):
        yield _task("tool", tool, path, problems, workbook)
        return
    if not isinstance(tool, list) or not tool:
        problems.error("E045", f"a pipeline is a list of tasks, or one task, not {show(tool)}", path)
        return
    labels: set[str] = set()
    for index, entry in enumerate(tool):
        at = (*path, index)
        if not isinstance(entry, dict) or len(entry) != 1:
            hint = "write `- label: {kind: …}`"
            problems.error("E045", "a task of a pipeline has exactly one label", at, hint)
            continue
        ((label, task),) = entry.items()
        if label in labels:
            problems.error("E042", f"two tasks are called {label!r}", (*at, label))
        labels.add(label)
        if isinstance(task, dict):
            yield _task(label, task, (*at, label), problems, workbook)
        else:
            problems.error(
                "E045", f"task {label!r} must be an object with a `kind`, not {show(task)}", (*at, label)
            )


def _task(
    label: str,
    task: Mapping[str, Any],
    path: Path,
    problems: Problems,
    workbook: Workbook,
) -> RawTask:
    fields = Fields(task, path, problems)
    if "case" in task:
        problems.error("E046", "`case` is not part of this version", (*path, "case"), "write `eval` rules")
    kind = fields.text("kind", f"task {label!r}")
    made = RawTask(
        path,
        label,
        kind,
        (*path, "kind"),
        {key: value for key, value in task.items() if key not in _ABOUT},
        list(fields.objects("eval")),
    )
    return _named(made, "eval" in task, problems, workbook) if kind == "workbook" else made


def _named(task: RawTask, has_rules: bool, problems: Problems, workbook: Workbook) -> RawTask:
    """A task of the workbook, with the parameters that it is given here, and the rules if it is given any."""
    own = dict(task.parameters)
    name = own.pop("name", None)
    named = workbook.get(name) if isinstance(name, str) else None
    if named is None:
        at = (*task.path, "name") if name else task.path
        message = f"the workbook has no task {show(name)}" if name else "a workbook task needs a `name`"
        meant = suggest(name, workbook) if isinstance(name, str) else None
        problems.error("E044", message, at, f"did you mean {meant!r}?" if meant else None)
        return replace(task, kind="noop", parameters={})
    return replace(
        task,
        kind=named.kind,
        kind_path=named.kind_path,
        parameters={**named.parameters, **own},
        rules=task.rules if has_rules else named.rules,
    )


def read_arcs(fields: Fields) -> Iterator[RawArc]:
    """The arcs of `next`; a name, or a list of names, is short for them."""
    given, path, problems = fields.value.get("next"), (*fields.path, "next"), fields.problems
    entries = given if isinstance(given, list) else [] if given is None else [given]
    for index, entry in enumerate(entries):
        at = (*path, index) if isinstance(given, list) else path
        if isinstance(entry, str) and entry:
            yield RawArc(at, entry)
        elif isinstance(entry, dict):
            arc = Fields(entry, at, problems)
            arc.spelling(("step", "when", "args"))
            yield RawArc(at, arc.text("step", "an arc of `next`"), entry.get("when"), arc.object("args"))
        else:
            problems.error("E041", f"an arc of `next` is a step's name or an object, not {show(entry)}", at)
