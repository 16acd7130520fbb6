"""The shape of a playbook: every field read with its type, every problem kept with its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from msgspec import Struct

from rune.core.fitting import show
from rune.core.playbook.program import Reducer
from rune.formats.places import Path
from rune.formats.playbook.tasks import RawArc, RawTask, Workbook, read_arcs, read_tasks, read_workbook
from rune.formats.shape import Fields, Problems

__all__ = ["RawFanout", "RawLoop", "RawPlaybook", "RawStep", "read_playbook"]

_DOCUMENT = (
    "apiVersion",
    "kind",
    "metadata",
    "executor",
    "workload",
    "workflow",
    "workbook",
    "compatibility",
    "workflows",
)
_EXECUTOR = ("kind", "profile", "spec")
_EXECUTOR_SPEC = ("entry_step", "final_step", "no_next_is_error", "pool", "loop_mode", "fanout")
_STEP = ("step", "desc", "spec", "when", "args", "loop", "tool", "next", "vars")
_STEP_SPEC = ("next_mode", "timeout", "lease", "loop_mode", "fanout", "pool")
_LOOP = ("in", "iterator", "spec")
_LOOP_SPEC = ("mode", "max_in_flight")
_FANOUT = (
    "allow_partial",
    "fail_fast",
    "max_job_retries",
    "max_shards",
    "max_concurrent",
    "queue_ttl",
    "key",
    "reducers",
)
_REDUCERS = get_args(Reducer)


class RawLoop(Struct, frozen=True):
    """A loop as written."""

    path: Path
    source: Any
    iterator: str
    parallel: bool
    in_flight: int


class RawFanout(Struct, frozen=True, kw_only=True):
    """The policies of a fan-out; a step's own come before the executor's."""

    path: Path = ("executor", "spec", "fanout")
    allow_partial: bool = False
    fail_fast: bool = False
    max_job_retries: int = 3
    max_shards: int | None = None
    max_concurrent: int | None = None
    queue_ttl: float = 24 * 3600.0
    key: Any = None
    reducers: Mapping[str, Reducer] = {}


class RawStep(Struct, frozen=True, kw_only=True):
    """A step as written, with what it takes over from the executor."""

    path: Path
    name: str
    when: Any
    args: Any
    loop: RawLoop | None
    policy: RawFanout
    spread: bool
    """Its loop is spread over workers."""
    tasks: list[RawTask]
    arcs: list[RawArc]
    inclusive: bool
    timeout: float | None
    lease: float | None
    pool: str
    vars: Mapping[str, Any]

    @property
    def fanout(self) -> RawFanout | None:
        """The policies, where the loop is spread over workers."""
        return self.policy if self.spread else None


class RawPlaybook(Struct, frozen=True, kw_only=True):
    """A playbook as written; steps that make no sense at all are left out."""

    name: str
    entry: str
    final: str
    must_go_on: bool
    workload: Mapping[str, Any]
    steps: list[RawStep]
    workbook: Workbook
    vars: Mapping[str, Any]
    old_names: bool


class _Executor(Struct, frozen=True):
    entry: str
    final: str
    must_go_on: bool
    pool: str
    loop_mode: str
    fanout: RawFanout


def read_playbook(data: Mapping[str, Any], problems: Problems) -> RawPlaybook:
    """Read the whole document."""
    fields = Fields(data, (), problems)
    fields.spelling(_DOCUMENT)
    old_names = fields.flag("compatibility")
    _check_kind(fields)
    metadata = Fields(fields.object("metadata") or {}, ("metadata",), problems)
    name = metadata.text("name", "the playbook's metadata")
    executor = _read_executor(fields)
    vars = _old_vars(fields, old_names)
    workbook = read_workbook(fields)
    steps = [
        _read_step(item, path, problems, executor, workbook, old_names)
        for item, path in fields.objects("workflow")
    ]
    if not steps:
        problems.error(
            "E011", "the playbook has no steps in 'workflow'", ("workflow",) if "workflow" in data else ()
        )
    return RawPlaybook(
        name=name,
        entry=executor.entry or (steps[0].name if steps else ""),
        final=executor.final,
        must_go_on=executor.must_go_on,
        workload=fields.object("workload") or {},
        steps=steps,
        workbook=workbook,
        vars=vars,
        old_names=old_names,
    )


def _check_kind(fields: Fields) -> None:
    version = fields.text("apiVersion", "the playbook")
    if version and version != "noetl.io/v2":
        message = f"apiVersion {show(version)} is not one this Rune reads"
        fields.problems.error("E040", message, ("apiVersion",), "write 'noetl.io/v2'")
    kind = fields.text("kind", "the playbook")
    if kind and kind != "Playbook":
        message = f"kind {show(kind)} is not one this Rune reads"
        fields.problems.error("E040", message, ("kind",), "write 'Playbook'")


def _old_vars(fields: Fields, old_names: bool) -> Mapping[str, Any]:
    if "vars" in fields.value and not old_names:
        fields.problems.error(
            "E048",
            "`vars` belongs to a step run, not to the document or the step",
            (*fields.path, "vars"),
            "put defaults into `workload`, or say `compatibility: true`",
        )
    return fields.object("vars") or {}


def _read_executor(fields: Fields) -> _Executor:
    problems = fields.problems
    outer = Fields(fields.object("executor") or {}, ("executor",), problems)
    outer.spelling(_EXECUTOR)
    for name in ("kind", "profile"):
        kind = outer.text(name)
        if kind not in ("", "distributed", "local", "hybrid"):
            message = f"unknown executor {name} {show(kind)}"
            problems.error("E040", message, ("executor", name), "local, hybrid or distributed")
    spec = Fields(outer.object("spec") or {}, ("executor", "spec"), problems)
    spec.spelling(_EXECUTOR_SPEC)
    return _Executor(
        spec.text("entry_step"),
        spec.text("final_step"),
        spec.flag("no_next_is_error"),
        spec.pool(),
        _loop_mode(spec),
        _read_fanout(spec, RawFanout()),
    )


def _loop_mode(spec: Fields) -> str:
    mode = spec.text("loop_mode")
    if mode not in ("", "local", "fanout"):
        spec.problems.error(
            "E043", f"unknown loop_mode {show(mode)}", (*spec.path, "loop_mode"), "local or fanout"
        )
        return ""
    return mode


def _read_step(
    item: Mapping[str, Any],
    path: Path,
    problems: Problems,
    executor: _Executor,
    workbook: Workbook,
    old_names: bool,
) -> RawStep:
    fields = Fields(item, path, problems)
    fields.spelling(_STEP)
    name = fields.identifier("step", "a step")
    spec = Fields(fields.object("spec") or {}, (*path, "spec"), problems)
    spec.spelling(_STEP_SPEC)
    loop = _read_loop(fields, name)
    tasks = list(read_tasks(fields, workbook))
    arcs = list(read_arcs(fields))
    if item.get("tool") is None and item.get("next") is None:
        problems.error("E045", f"step {name!r} has neither `tool` nor `next`", path)
    if "case" in item:
        hint = "write `next` with `when`, or `eval` rules of its tasks"
        problems.error("E046", "`case` is not part of this version", (*path, "case"), hint)
    mode = spec.text("next_mode")
    if mode not in ("", "exclusive", "inclusive"):
        problems.error(
            "E041", f"unknown next_mode {show(mode)}", (*spec.path, "next_mode"), "exclusive or inclusive"
        )
    spread = (_loop_mode(spec) or executor.loop_mode) == "fanout"
    lease = Fields(spec.object("lease") or {}, (*spec.path, "lease"), problems)
    lease.spelling(("ttl",))
    return RawStep(
        path=path,
        name=name,
        when=item.get("when"),
        args=fields.object("args"),
        loop=loop,
        policy=_read_fanout(spec, executor.fanout),
        spread=spread and loop is not None,
        tasks=tasks,
        arcs=arcs,
        inclusive=mode == "inclusive",
        timeout=_seconds(spec, "timeout"),
        lease=_seconds(lease, "ttl"),
        pool=spec.pool(executor.pool),
        vars=_old_vars(fields, old_names),
    )


def _seconds(fields: Fields, name: str) -> float | None:
    value = fields.value.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    fields.problems.error("E010", f"{name!r} must be seconds, not {show(value)}", (*fields.path, name))
    return None


def _read_loop(fields: Fields, step: str) -> RawLoop | None:
    found = fields.object("loop")
    if found is None:
        return None
    path, problems = (*fields.path, "loop"), fields.problems
    loop = Fields(found, path, problems)
    loop.spelling(_LOOP)
    iterator = loop.text("iterator")
    for name in ("in", "iterator"):
        if found.get(name) in (None, ""):
            problems.error(
                "E043",
                f"the loop of step {step!r} has no {name!r}",
                path,
                "a loop needs both `in` and `iterator`",
            )
    spec = Fields(loop.object("spec") or {}, (*path, "spec"), problems)
    spec.spelling(_LOOP_SPEC)
    mode = spec.text("mode")
    if mode not in ("", "sequential", "parallel"):
        problems.error(
            "E043", f"unknown loop mode {show(mode)}", (*spec.path, "mode"), "sequential or parallel"
        )
    return RawLoop(path, found.get("in"), iterator, mode == "parallel", _count(spec, "max_in_flight", 10))


def _count(fields: Fields, name: str, default: Any, least: int = 1) -> Any:
    value = fields.value.get(name)
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    message = f"{name!r} must be a whole number of at least {least}, not {show(value)}"
    fields.problems.error("E043", message, (*fields.path, name))
    return default


def _read_fanout(spec: Fields, common: RawFanout) -> RawFanout:
    """The policies of a spec, and of those that it does not have the common ones."""
    problems = spec.problems
    fields = Fields(spec.object("fanout") or {}, (*spec.path, "fanout"), problems)
    fields.spelling(_FANOUT)
    given = fields.value
    allow_partial = fields.flag("allow_partial") if "allow_partial" in given else common.allow_partial
    fail_fast = fields.flag("fail_fast") if "fail_fast" in given else common.fail_fast
    path = fields.path if given else common.path
    if allow_partial and fail_fast:
        message = "`fail_fast` and `allow_partial` contradict each other"
        problems.error("E049", message, path, "keep one of them")
    reducers: Mapping[str, Any] | None = fields.object("reducers")
    for name, op in (reducers or {}).items():
        if op not in _REDUCERS:
            message = f"unknown reducer {show(op)}"
            problems.error("E049", message, (*path, "reducers", name), ", ".join(_REDUCERS))
    return RawFanout(
        path=path,
        allow_partial=allow_partial,
        fail_fast=fail_fast,
        max_job_retries=_count(fields, "max_job_retries", common.max_job_retries, 0),
        max_shards=_count(fields, "max_shards", common.max_shards),
        max_concurrent=_count(fields, "max_concurrent", common.max_concurrent),
        queue_ttl=_seconds(fields, "queue_ttl") or common.queue_ttl,
        key=given.get("key", common.key),
        reducers=common.reducers if reducers is None else reducers,
    )
