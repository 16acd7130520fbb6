"""Nodes that do what a test says, and a runner for one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec
import pytest

from rune.core.errors import ErrorInfo
from rune.core.node import Gathered, NodeType, Role, StepContext
from rune.core.outcome import Failed, Outcome
from rune.core.step import Step
from rune.core.workflow import Node
from rune.engine.running import Attempt
from rune.engine.sealing import decode_outcome
from rune.settings import Settings
from tests.core.graphs import branch, graph, node, step
from tests.engine.bench import Bench

__all__ = ["SECRET", "Body", "Rig", "attempt", "both", "doing", "failure"]

SECRET = 'hunter2 "quoted"'
Body = Callable[[StepContext], Awaitable[Any]]


def doing(body: Body, *, role: Role = Role.PLAIN, pure: bool = False) -> type[NodeType]:
    """A node type that runs this."""

    class Doing(NodeType, kw_only=True):
        """Do what a test says."""

        name: ClassVar = "doing"

        of: Any = None

        async def run(self, context: StepContext) -> Outcome:
            found: Outcome = await body(context)
            return found

    Doing.role, Doing.pure, Doing.effects = role, pure, not pure
    return Doing


class Rig:
    """A runner for one node."""

    def __init__(self, type: type[NodeType], *, settings: Settings | None = None, **changes: Any) -> None:
        self.bench = Bench("a > b", settings=settings, credentials={"mail": {"password": SECRET}})
        parameters = changes.pop("parameters", {})
        self.node: Node = msgspec.structs.replace(node("a", type, **parameters), **changes)
        self.flow = graph("a > b", nodes=(self.node,))

    def step(
        self, context: dict[str, Any] | None = None, *, fence: int = 0, attempt: int = 1, **rest: Any
    ) -> Step:
        made = step(self.flow, "a", branch(context=context, **rest), fence=fence)
        return msgspec.structs.replace(made, task=msgspec.structs.replace(made.task, attempt=attempt))

    async def run(self, at: Step | None = None, record: bytes | None = None) -> Attempt:
        values, state = self.bench.engine.values, self.bench.state
        return await self.bench.runner.run(at or self.step(), values, state, record)

    async def run_pure(self, *at: Step, gathered: Gathered | None = None) -> list[Attempt]:
        return await self.bench.runner.run_pure(at or [self.step()], self.bench.engine.values, gathered)


async def attempt(body: Body, *, pure: bool = False, **changes: Any) -> Attempt:
    """How a body comes out; what comes out can always be kept."""
    rig = Rig(doing(body, pure=pure), **changes)
    made = (await rig.run_pure())[0] if pure else await rig.run()
    assert decode_outcome(msgspec.json.encode(made.outcome)) == made.outcome
    return made


async def failure(body: Body, **rest: Any) -> ErrorInfo:
    """The error a body ends with."""
    made = await attempt(body, **rest)
    assert isinstance(made.outcome, Failed)
    assert made.outcome.error.node == "a"
    return made.outcome.error


both = pytest.mark.parametrize("pure", [False, True], ids=["waiting", "pure"])
