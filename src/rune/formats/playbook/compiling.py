"""A playbook as a Workflow, or everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rune.core.errors import Problem
from rune.core.expressions import Template, suggest
from rune.core.parameters import Parameters
from rune.core.playbook.program import Arc, Loop, Program, Task
from rune.core.playbook.routing import END
from rune.core.workflow import Edge, Job, Node, Retry, Workflow
from rune.formats.graph import Registry
from rune.formats.places import Path
from rune.formats.playbook.loops import check_collection, is_read
from rune.formats.playbook.rules import DIALECT, check_kind, compile_task, guard, template
from rune.formats.playbook.shape import RawLoop, RawPlaybook, RawStep, read_playbook
from rune.formats.shape import Problems, tidy

__all__ = ["check_playbook"]

_SHARED = ("vars", "ctx")
_USUAL = Job()
_LEASE = 120.0
"""Seconds without a sign of life after which a step's worker is taken for dead, unless it says otherwise."""


def check_playbook(
    data: Mapping[str, Any], registry: Registry, *, definition: bytes = b""
) -> tuple[Workflow | None, list[Problem]]:
    """The workflow, if it can be run, and every problem, by path."""
    problems = Problems()
    raw = read_playbook(data, problems)
    _check_names(raw, problems)
    for task in raw.workbook.values():
        check_kind(task, registry, problems)
    for step in raw.steps:
        _check_writes(step, problems)
    compiler = _Compiler(raw, registry, problems)
    nodes, edges = compiler.compile()
    # What several steps share is looked at with each of them.
    found = list(dict.fromkeys(problems.found))
    if problems.errors:
        return None, found
    definition = definition or msgspec.json.encode(data)
    flow = Workflow(tidy(raw.name) or "playbook", nodes, edges, name=raw.name, definition=definition)
    return flow, found


def _check_names(raw: RawPlaybook, problems: Problems) -> None:
    names: set[str] = set()
    for step in raw.steps:
        if step.name in names:
            problems.error("E042", f"two steps are called {step.name!r}", (*step.path, "step"))
        names.add(step.name)
    spec: Path = ("executor", "spec")
    named: list[tuple[Path, str]] = [((*spec, "entry_step"), raw.entry), ((*spec, "final_step"), raw.final)]
    named += [((*arc.path, "step"), arc.step) for step in raw.steps for arc in step.arcs]
    for path, name in named:
        if name and name not in names:
            meant = suggest(name, names)
            hint = f"did you mean {meant!r}?" if meant else f"there are {_some(raw.steps)}"
            problems.error("E041", f"there is no step {name!r}", path, hint)


def _some(steps: Sequence[RawStep]) -> str:
    """The names of steps, or of the first of them."""
    names = [step.name for step in steps if step.name]
    return ", ".join([*names[:10], "…"] if len(names) > 10 else names)


def _check_writes(step: RawStep, problems: Problems) -> None:
    """Refuse writes of one iteration that others would see, where they run side by side."""
    for task in step.tasks:
        for rule, path in task.rules:
            otherwise = rule.get("else")
            body, at = (otherwise, (*path, "else")) if isinstance(otherwise, dict) else (rule, path)
            _check_scopes(step, body, at, problems)
            _check_shared(step, body.get("set_shared"), (*at, "set_shared"), problems)


def _check_scopes(step: RawStep, body: Mapping[str, Any], at: Path, problems: Problems) -> None:
    side_by_side = _SHARED if step.spread else ("vars",) if step.loop and step.loop.parallel else ()
    how = "under `loop_mode: fanout`" if step.spread else "in a parallel loop"
    for where in side_by_side:
        if f"set_{where}" in body:
            problems.error(
                "E047",
                f"`set_{where}` is refused {how}: the iterations of step {step.name!r} run side by "
                "side, and each would overwrite what the others wrote",
                (*at, f"set_{where}"),
                "write `set_iter`, or `set_shared` to a declared reducer, or return it as the result",
            )


def _check_shared(step: RawStep, shared: Any, at: Path, problems: Problems) -> None:
    if shared is not None and step.loop is None:
        message = f"`set_shared` is for the iterations of a loop, and step {step.name!r} has none"
        problems.error("E047", message, at, "write `set_vars` or `set_ctx`")
        return
    for name in shared if isinstance(shared, dict) else ():
        if name not in step.policy.reducers:
            hint = f"declare `fanout.reducers: {{{name}: sum}}` (or min, max, append, merge)"
            problems.error("E047", f"nobody reduces the shared value {name!r}", (*at, name), hint)


class _Compiler:
    """Makes the nodes and edges of a playbook."""

    def __init__(self, raw: RawPlaybook, registry: Registry, problems: Problems) -> None:
        self._raw = raw
        self._registry = registry
        self._problems = problems
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._outputs = {
            step.name: f"${step.name}~join" if step.fanout else f"${step.name}" for step in raw.steps
        }
        """The name in the context of each step's output."""
        self._writes_ctx = any(
            "set_ctx" in body
            for step in raw.steps
            for task in step.tasks
            for rule, _ in task.rules
            for body in (rule, rule.get("else"))
            if isinstance(body, dict)
        )

    def compile(self) -> tuple[list[Node], list[Edge]]:
        raw = self._raw
        self._add("~start", "playbook.start", "start", {}, trigger=True)
        self._add("~workload", "playbook.workload", "workload", {"defaults": dict(raw.workload)})
        self._add("~tokens", "playbook.tokens", "tokens", {})
        self._add(
            "~ended",
            "playbook.ended",
            "ended",
            {"steps": self._outputs, "writes_ctx": self._writes_ctx},
            self._outputs.values(),
        )
        self._add("~verdict", "playbook.verdict", "result", {"final": raw.final}, [f"${raw.final}"])
        self._edge("~start", "~workload")
        self._edge("~workload", "~tokens")
        self._edge("~tokens", self._place(raw.entry))
        running = _reachable(raw)
        for step in raw.steps:
            if step.name in running or raw.entry not in self._outputs:
                self._step(step)
            else:
                self._problems.warn("W004", f"step {step.name!r} never runs: no arc leads to it", step.path)
                self._program(step)
        self._edge("~ended", raw.final or "~verdict")
        return self._nodes, self._edges

    def _step(self, step: RawStep) -> None:
        final = step.name == self._raw.final
        if final and step.arcs:
            message = "the final step is the last: its `next` is never followed"
            self._problems.warn("W003", message, (*step.path, "next"))
        if final and step.spread:
            message = "the final step runs where the tokens have ended, so its loop cannot be fanned out"
            self._problems.error("E049", message, step.path, "say `spec: {loop_mode: local}`")
            return
        program, read = self._program(step)
        if final and read:
            read |= {"$~ended"}
        fields = {"program": program, "steps": self._outputs}
        if step.fanout is None:
            job = Job(lease=step.lease or _LEASE)
            self._add(step.name, "playbook.pipeline", step.name, fields, read, step.pool, job=job)
            self._leave(step.name, step, program)
            return
        body, joining = f"{step.name}~shard", f"{step.name}~join"
        opening, policy = f"{step.name}~open", step.fanout
        opened = {
            **fields,
            "fail_fast": policy.fail_fast,
            "window": policy.max_concurrent or 0,
            "max_shards": policy.max_shards or 0,
        }
        joined = {**fields, "allow_partial": policy.allow_partial}
        self._add(step.name, "playbook.enter", step.name, fields, read)
        self._add(opening, "playbook.open", f"{step.name}: open", opened, read)
        # The start that finds it given up is one more.
        job = Job(policy.queue_ttl, step.lease or _LEASE, policy.max_job_retries + 2)
        again = Retry(policy.max_job_retries + 1)
        shown = f"{step.name}: shard"
        shard = {**fields, "chunked": bool(policy.max_shards)}
        self._add(body, "playbook.shard", shown, shard, [*read, "$item"], step.pool, again, job=job)
        self._add(joining, "playbook.join", f"{step.name}: join", joined, read)
        self._edge(step.name, opening)
        self._edge(step.name, "~ended", END)
        self._edge(opening, body)
        self._edge(body, joining)
        self._leave(joining, step, program)

    def _leave(self, node: str, step: RawStep, program: Program) -> None:
        """The edges by which a token leaves a step."""
        if step.name == self._raw.final:
            self._edge(node, "~verdict", END)
            return
        for arc in program.arcs:
            self._edges.append(Edge(arc.edge, node, self._place(arc.step), arc.edge))
        self._edge(node, "~ended", END)

    def _place(self, step: str) -> str:
        """Where a token goes that is sent to a step: before the final one it waits for all others to end."""
        return "~ended" if step == self._raw.final else step

    def _program(self, step: RawStep) -> tuple[Program, frozenset[str]]:
        problems, raw = self._problems, self._raw
        labels = {task.label for task in step.tasks}
        tasks = [compile_task(task, labels, self._registry, problems) for task in step.tasks]
        known: list[Task] = [task for task in tasks if task is not None]
        arcs = [] if step.name == raw.final else self._arcs(step)
        loop = None
        if step.loop is not None:
            self._check_loop(step, step.loop)
            source = template(step.loop.source, (*step.loop.path, "in"), problems) or DIALECT.template([])
            key = template(step.policy.key, (*step.policy.path, "key"), problems)
            loop = Loop(source, step.loop.iterator, step.loop.parallel, step.loop.in_flight, key)
        program = Program(
            step=step.name,
            tasks=known,
            when=guard(step.when, (*step.path, "when"), problems),
            args=template(step.args, (*step.path, "args"), problems),
            loop=loop,
            arcs=arcs,
            inclusive=step.inclusive,
            must_go_on=raw.must_go_on and bool(step.arcs),
            timeout=step.timeout,
            reducers=step.policy.reducers if step.loop else {},
            vars={**raw.vars, **step.vars},
            writes_ctx=self._writes_ctx,
            old_names=raw.old_names,
        )
        reads = _names(msgspec.structs.replace(program, loop=None))
        if loop is not None and loop.key is not None:
            reads |= loop.key.names
        program = msgspec.structs.replace(program, reads=reads)
        return program, self._named(_names(program) | reads)

    def _check_loop(self, step: RawStep, loop: RawLoop) -> None:
        check_collection(loop.source, (*loop.path, "in"), self._problems)
        fanout = step.fanout
        if fanout is not None and fanout.max_shards and is_read(loop.source):
            message = "`max_shards` needs a known number of elements: those of a source are not known before"
            hint = "`max_concurrent` limits what runs at the same time"
            self._problems.error("E049", message, (*fanout.path, "max_shards"), hint)

    def _arcs(self, step: RawStep) -> list[Arc]:
        return [
            Arc(
                f"{step.name}.{n}",
                arc.step,
                guard(arc.when, (*arc.path, "when"), self._problems),
                template(arc.args, (*arc.path, "args"), self._problems),
            )
            for n, arc in enumerate(step.arcs)
        ]

    def _named(self, names: Iterable[str]) -> frozenset[str]:
        """The names in the context of the steps among these."""
        return frozenset(self._outputs[name] for name in names if name in self._outputs)

    def _add(
        self,
        id: str,
        type_name: str,
        name: str,
        fields: Mapping[str, Any],
        read: Iterable[str] = (),
        pool: str = "",
        retry: Retry | None = None,
        trigger: bool = False,
        job: Job = _USUAL,
    ) -> None:
        type = self._registry.get(type_name)
        if type is None:
            message = f"this process knows no node type {type_name}, so that it cannot run playbooks"
            self._problems.error("E040", message, ())
            return
        parameters = Parameters(type, fields, {}, [], DIALECT)
        parameters.names = parameters.names.union(read, ("$json", "$~workload"))
        self._nodes.append(
            Node(
                id,
                name,
                type,
                parameters,
                retry=retry,
                trigger=trigger,
                deterministic=type.pure,
                pool=pool,
                job=job,
            )
        )

    def _edge(self, src: str, dst: str, port: str = "out") -> None:
        self._edges.append(Edge(f"{src}>{dst}", src, dst, port))


def _reachable(raw: RawPlaybook) -> set[str]:
    """The steps that a token can come to."""
    ways = {step.name: [arc.step for arc in step.arcs] for step in raw.steps}
    todo = [raw.entry]
    seen = {raw.entry, raw.final}
    while todo:
        for name in ways.get(todo.pop(), ()):
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return seen


def _names(program: Program) -> frozenset[str]:
    """The names that a program's templates read."""
    names = [found.names for found in _templates(program)]
    return frozenset().union(*names, *(task.parameters.names for task in program.tasks))


def _templates(program: Program) -> Iterable[Template]:
    found = [program.when, program.args, program.loop.source if program.loop else None]
    for arc in program.arcs:
        found += [arc.when, arc.args]
    for task in program.tasks:
        for rule in task.rules:
            found += [rule.when, *rule.writes.values()]
    return [each for each in found if each is not None]
