"""One step, as it was: what came in, what its parameters were, and what came out."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from rune.core.errors import NodeError
from rune.core.expressions import Expression, ExpressionError
from rune.core.scope import BranchScope
from rune.core.workflow import Node, Workflow
from rune.history import History
from rune.history.executions import Execution
from rune.history.steps import StepRecord
from rune.master.ancestry import Ancestry, Known

__all__ = ["Inspected", "inspect"]


class Inspected(Struct, frozen=True, kw_only=True):
    """What can be worked out of a step besides what is stored of it."""

    input: Raw | None = None
    """What the node before gave, or the payload it left."""
    item: Raw | None = None
    """The item it was for, in a split."""
    parameters: dict[str, Any] | None = None
    """With every template resolved again; expressions that the node evaluates itself as they are written."""
    exact: bool = True
    """Whether they are what they were: what asks the clock or chance gives another value now."""
    notes: tuple[str, ...] = ()
    """What could not be worked out, and why."""


async def inspect(history: History, execution: Execution, flow: Workflow, step: StepRecord) -> Inspected:
    """What a step got to see. Credentials are references, here as everywhere: no secret is in it."""
    node = flow.nodes.get(step.node_id)
    if node is None:
        return Inspected(notes=(f"the workflow has no node '{step.node_id}'",))
    ancestry = Ancestry(history, execution, flow)
    known = await ancestry.known(step)
    if known is None:
        return Inspected(notes=("the way that led to this step is not in the history",))
    notes = [f"the output of '{id}' is no longer there" for id in dict.fromkeys(known.lost)]
    scope = ancestry.scope(step, known)
    parameters = None
    try:
        parameters = _shown(node.parameters.constant or node.parameters.resolve(scope))
    except NodeError as error:
        notes.append(error.message)
    except ExpressionError as error:
        notes.append(str(error))
    return Inspected(
        input=_previous(scope),
        item=_item(known, step),
        parameters=parameters,
        exact=_exact(node),
        notes=tuple(notes),
    )


def _exact(node: Node) -> bool:
    return bool(node.parameters.deterministic)


def _previous(scope: BranchScope) -> Raw | None:
    try:
        return scope.previous()
    except KeyError:
        return None


def _item(known: Known, step: StepRecord) -> Raw | None:
    return known.values.get("$item") if step.lineage else None


def _shown(parameters: Any) -> dict[str, Any]:
    """Parameters as plain data."""
    fields = msgspec.structs.fields(parameters)
    return {field.encode_name: _plain(getattr(parameters, field.name)) for field in fields}


def _plain(value: Any) -> Any:
    match value:
        case Expression():
            return value.source
        case msgspec.Struct():
            return _shown(value)
        case dict():
            return {str(key): _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case _:
            return value
