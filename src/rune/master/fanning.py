"""The items of a split, worked out again from what its branch knew."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.errors import RuneError
from rune.core.expressions import Expression, ExpressionError
from rune.core.node import Gathered
from rune.core.outcome import FanOut
from rune.core.scope import BranchScope, Over
from rune.core.workflow import Node
from rune.history.executions import Execution
from rune.master.standing import wish_of

__all__ = ["items_of"]


async def items_of(node: Node, scope: BranchScope, execution: Execution, step: str) -> Sequence[Any] | None:
    """The items that a split's step fanned out over; None where they cannot be worked out again."""
    if not node.type.pure:
        return None
    try:
        parameters = node.parameters.constant or node.parameters.resolve(scope)
        outcome = await parameters.run(_Onlooker(node, scope, execution, step))
    except (RuneError, ExpressionError, KeyError):
        return None
    if not isinstance(outcome, FanOut):
        return None
    source = outcome.source
    if source.items is None:
        return range(source.start, source.stop, source.stride)
    edits = _edits(execution, step)
    return [edits.get(i, item) for i, item in enumerate(source.items)] if edits else source.items


def _edits(execution: Execution, step: str) -> dict[int, Any]:
    edits = wish_of(execution).all_edits().get(step, {})
    return {item: msgspec.json.decode(value) for item, value in edits.items()}


class _Onlooker:
    """A StepContext for pure nodes: it shows what there is to see, and lets nothing be done."""

    attempt = 1
    last_attempt = True
    edge = barrier = ""
    frame = None
    gathered: Gathered | None = None

    def __init__(self, node: Node, scope: BranchScope, execution: Execution, step: str) -> None:
        self._scope = scope
        self.step = self.key = step
        self.execution_id = execution.id
        self.workflow_id = execution.workflow_id or "-"
        self.node_id = node.id
        self.node_name = node.name

    def evaluate(self, expression: Expression, names: Mapping[str, Any] | None = None) -> Any:
        return expression.evaluate(Over(names, self._scope) if names else self._scope)

    def value(self, name: str) -> Any:
        return self._scope.lookup(name)

    def previous(self) -> Raw:
        return self._scope.previous()

    def now(self) -> float:
        return time.time()

    async def credential(self, reference: str | None = None) -> Mapping[str, Any]:
        return {}

    def service(self, name: str) -> Any:
        raise KeyError(name)

    def log(self, level: str, message: str) -> None:
        return None
