"""A branch as a playbook sees it: its token, and the names that its expressions may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.node import StepContext
from rune.core.outcome import Done
from rune.core.playbook.memory import Memory
from rune.core.playbook.routing import END

__all__ = ["EVERY", "Token", "ToolView", "branch_of", "skipped", "token_of"]

EVERY = "*"
"""The key of arguments that are for whoever comes next."""


class Token(msgspec.Struct, frozen=True):
    """What a branch carries from step to step."""

    ctx: dict[str, Any]
    args: dict[str, Any] = {}
    """By the edge that the token goes along."""
    unmet: ErrorInfo | None = None
    """The failure that no arc met, where the token ends with one."""

    def output(self, result: Any) -> dict[str, Any]:
        """A step's output: the token as the working payload, and the result."""
        token: dict[str, Any] = {"ctx": self.ctx, "args": self.args}
        if self.unmet is not None:
            token["unmet"] = msgspec.to_builtins(self.unmet)
        return {"$json": token, "result": result}

    def args_of(self, context: StepContext) -> dict[str, Any]:
        """The arguments it brings to this step."""
        found: dict[str, Any] = self.args.get(context.edge) or self.args.get(EVERY) or {}
        return found


def token_of(context: StepContext) -> Token:
    """The token that has come to this step."""
    return msgspec.convert(context.value("$json"), Token)


def skipped(token: Token) -> Done:
    """The outcome of a step whose `when` does not hold: the token ends here."""
    return Done(Token(token.ctx).output(None), (END,), working=True, details={"event": "step.skipped"})


class _Branch:
    """Looks up what belongs to the execution: its workload, its id, the results of steps."""

    __slots__ = ("_context", "_steps")

    def __init__(self, context: StepContext, steps: Mapping[str, str]) -> None:
        self._context = context
        self._steps = steps

    def lookup(self, name: str) -> Any:
        if name == "workload":
            return self._context.value("$~workload")["workload"]
        if name == "execution_id":
            return self._context.execution_id
        return self._context.value(self._steps[name])["result"]

    def names(self) -> Iterator[str]:
        yield from ("workload", "execution_id", *self._steps)


def branch_of(context: StepContext, steps: Mapping[str, str]) -> _Branch:
    """The scope around a pipeline's own names."""
    return _Branch(context, steps)


class ToolView:
    """The step's context as a tool sees it."""

    def __init__(self, context: StepContext, memory: Memory, task: str, visit: str) -> None:
        self._context = context
        self._memory = memory
        self._visit = visit
        self.task = task

    @property
    def key(self) -> str:
        """The idempotency key of this task's effects."""
        return derive(self._context.key, self._visit)

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the step run."""
        given: Mapping[str, Any] = self._memory["args"]
        return given

    @property
    def old_args(self) -> Mapping[str, Any]:
        """What code of older playbooks also expects as variables."""
        return {"input_data": self.args} if "input_data" in self._memory else {}

    @property
    def last_attempt(self) -> bool:
        """A tool reports what it got; whether it is tried again is its task's `eval`."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
