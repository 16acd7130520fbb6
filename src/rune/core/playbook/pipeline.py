"""One run of a pipeline, decided task by task: a generator that asks for tasks to be run."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from msgspec import Struct

from rune.core.errors import ErrorInfo, NodeError
from rune.core.expressions import ExpressionError
from rune.core.playbook.memory import Memory
from rune.core.playbook.program import Rule, Task, holds

__all__ = ["Call", "Ended", "Pipeline", "Rest", "run_pipeline"]


class Call(Struct, frozen=True):
    """Run this task now; its outcome is sent back."""

    task: Task
    attempt: int


class Rest(Struct, frozen=True):
    """Wait this many seconds before going on."""

    seconds: float


class Ended(Struct, frozen=True):
    """How the run came out: the last task's result, or the error that ended it."""

    result: Any = None
    error: ErrorInfo | None = None


Pipeline = Generator[Call | Rest, Any, Ended]


def run_pipeline(tasks: Sequence[Task], memory: Memory) -> Pipeline:
    """Run the tasks from the first on, as their rules say."""
    places = {task.label: at for at, task in enumerate(tasks)}
    at, attempt = 0, 1
    result: Any = None
    while at < len(tasks):
        task = tasks[at]
        memory.know(_task=task.label, _attempt=attempt)
        outcome = yield Call(task, attempt)
        memory.know(outcome=outcome)
        failed = outcome["status"] != "success"
        if not failed:
            result = outcome["result"]
            memory.know(_prev=result, results={**memory["results"], task.label: result})
        rule = _matching(task, memory)
        do = rule.do if rule is not None else ("fail" if failed else "continue")
        if rule is not None and (refused := _write(task, rule, memory)):
            return Ended(error=refused)
        if do == "retry" and rule is not None:
            if attempt < rule.retry.attempts:
                yield Rest(rule.retry.rest(attempt))
                attempt += 1
                continue
            do = "fail"
        attempt = 1
        if do == "fail":
            return Ended(error=_error(task, outcome))
        if do == "break":
            break
        at = places[rule.to] if do == "jump" and rule is not None else at + 1
    return Ended(result)


def _matching(task: Task, memory: Memory) -> Rule | None:
    return next((rule for rule in task.rules if holds(rule.when, memory)), None)


def _write(task: Task, rule: Rule, memory: Memory) -> ErrorInfo | None:
    """Carry out what the rule writes, all of it as seen before; why that is impossible."""
    try:
        values = [(where, template.resolve(memory)) for where, template in rule.writes.items()]
    except ExpressionError as error:
        return ErrorInfo(f"task '{task.label}' cannot write what its rule says: {error}", "PLAYBOOK_WRITE")
    for where, value in values:
        if where != "prev" and not isinstance(value, dict):
            return ErrorInfo(f"task '{task.label}': `set_{where}` must give an object", "PLAYBOOK_WRITE")
        memory.write(where, value)
    return None


def _error(task: Task, outcome: dict[str, Any]) -> ErrorInfo:
    error = outcome.get("error")
    if not error:
        return ErrorInfo(f"task '{task.label}' ended in `fail`", "PLAYBOOK_FAIL", {"task": task.label})
    details = {key: value for key, value in error.items() if key not in ("message", "code")}
    code = str(error.get("code") or NodeError.__name__)
    return ErrorInfo(str(error.get("message", "")), code, {"task": task.label, **details})
