"""A branch as a playbook sees it: its token, and the names that its expressions may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from rune.core.errors import ErrorInfo
from rune.core.expressions import ExpressionError
from rune.core.ids import derive
from rune.core.node import StepContext
from rune.core.outcome import Done
from rune.core.playbook.memory import EXECUTION, Memory
from rune.core.playbook.program import Loop, Program
from rune.core.playbook.references import is_manifest, is_result_ref
from rune.core.playbook.routing import END
from rune.nodes._results import loaded

__all__ = ["EVERY", "Token", "ToolView", "arrived", "branch_of", "collection_of", "skipped", "token_of"]

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


async def arrived(context: StepContext, program: Program) -> Token:
    """The token that has come to this step, with `ctx` as all tokens have written it so far."""
    token = token_of(context)
    if not program.writes_ctx:
        return token
    # One that was redriven from a history without variables knows of some by its tokens alone.
    return msgspec.structs.replace(token, ctx={**token.ctx, **await context.variables()})


def skipped(token: Token) -> Done:
    """The outcome of a step whose `when` does not hold: the token ends here."""
    return Done(Token(token.ctx).output(None), (END,), working=True, details={"event": "step.skipped"})


class _Branch:
    """Looks up what belongs to the execution: its workload, its id, the results of steps."""

    __slots__ = ("_context", "_loaded", "_steps")

    def __init__(self, context: StepContext, steps: Mapping[str, str]) -> None:
        self._context = context
        self._steps = steps
        self._loaded: dict[str, Any] = {}

    async def loading(self, names: Iterable[str]) -> _Branch:
        """The same, with the results of these steps themselves in place of references to them."""
        for name in names:
            if name in self._steps and name not in self._loaded:
                try:
                    found = self.lookup(name)
                except KeyError:
                    continue
                value = await loaded(self._context, found)
                if value is not found:
                    self._loaded[name] = value
        return self

    @property
    def refers(self) -> bool:
        """Whether any of the results that were loaded was a reference."""
        return bool(self._loaded)

    def lookup(self, name: str) -> Any:
        if name in self._loaded:
            return self._loaded[name]
        if name == "workload":
            return self._context.value("$~workload")["workload"]
        if name == "execution_id":
            return self._context.execution_id
        try:
            return self._context.value(self._steps[name])["result"]
        except KeyError:
            # The final step is no part of the branches that ran the others.
            return self._context.value("$~ended")["steps"][name]

    def names(self) -> Iterator[str]:
        yield from (*EXECUTION, *self._steps)


def branch_of(context: StepContext, steps: Mapping[str, str]) -> _Branch:
    """The scope around a pipeline's own names."""
    return _Branch(context, steps)


async def collection_of(context: StepContext, steps: Mapping[str, str], loop: Loop, memory: Memory) -> Any:
    """What `loop.in` comes to; a list that is stored stays a reference, or a manifest."""
    value: Any = None
    with suppress(ExpressionError):
        value = loop.source.resolve(memory.over(branch_of(context, steps)))
    if is_manifest(value) or is_result_ref(value):
        return value
    branch = await branch_of(context, steps).loading(loop.source.names)
    # Where a reference was in the way, what was made of it does not count.
    return loop.source.resolve(memory.over(branch)) if branch.refers or value is None else value


class ToolView:
    """The step's context as a tool sees it."""

    def __init__(self, context: StepContext, memory: Memory, task: str, visit: str, attempt: int = 1) -> None:
        self._context = context
        self._memory = memory
        self._visit = visit
        self._attempt = attempt
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

    async def call(self, workflow: str, input: Any) -> Any:
        """Run another workflow: one for each attempt of each visit, however often that itself is run."""
        return await self._context.call(workflow, input, f"{self._visit}.{self._attempt}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
