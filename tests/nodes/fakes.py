"""What node tests share: a step to run in, without an engine around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rune.core.errors import DefinitionError
from rune.core.expressions import Expression
from rune.core.node import Gathered, NodeType
from rune.core.outcome import Outcome
from rune.core.parameters import Dialect, compile_parameters
from rune.nodes._guard import Guard

NOW = 1_767_225_600.25
"""2026-01-01T00:00:00.250Z."""


class Names:
    """A scope of plain values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def lookup(self, name: str) -> Any:
        return self.values[name]

    def names(self) -> Iterable[str]:
        return self.values


class FakeContext:
    """A StepContext that keeps what it is told."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        credential: Mapping[str, Any] | None = None,
        services: Mapping[str, Any] | None = None,
        gathered: Gathered | None = None,
        last_attempt: bool = True,
    ) -> None:
        self.values = dict(values or {})
        self.step = self.key = "step-1"
        self.execution_id = "execution-1"
        self.workflow_id = "workflow-1"
        self.node_id = "node"
        self.node_name = "Node"
        self.attempt = 1
        self.last_attempt = last_attempt
        self.gathered = gathered
        self.logged: list[tuple[str, str]] = []
        self._credential = credential or {}
        self._services = {"guard": Guard(["*"]), **(services or {})}

    def evaluate(self, expression: Expression, names: Mapping[str, Any] | None = None) -> Any:
        return expression.evaluate(Names({**self.values, **(names or {})}))

    def previous(self) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self.values["$previous"]))

    def now(self) -> float:
        return NOW

    async def credential(self, reference: str | None = None) -> Mapping[str, Any]:
        return self._credential

    def service(self, name: str) -> Any:
        return self._services[name]

    def log(self, level: str, message: str) -> None:
        self.logged.append((level, message))


def made(type: type[NodeType], context: FakeContext, parameters: Mapping[str, Any]) -> NodeType:
    """The node with its parameters as the engine gives them; DefinitionError says what is wrong."""
    compiled, problems = compile_parameters(type, parameters, dialect=Dialect(), path=())
    if compiled is None:
        raise DefinitionError(problems)
    return compiled.resolve(Names(context.values))


async def run(type: type[NodeType], context: FakeContext | None = None, /, **parameters: Any) -> Outcome:
    """Run one step of this type."""
    context = context or FakeContext()
    return await made(type, context, parameters).run(context)


async def output(type: type[NodeType], context: FakeContext | None = None, /, **parameters: Any) -> Any:
    """What one step of this type gives, as it looks after its way through JSON."""
    outcome = await run(type, context, **parameters)
    return msgspec.json.decode(msgspec.json.encode(outcome.output))  # type: ignore[union-attr]
