"""The workflow node: run another workflow, and wait for its result."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Call, Outcome

__all__ = ["Workflow"]


class Workflow(NodeType, kw_only=True):
    """Run another workflow, or a playbook, as an execution of its own; the output is its result.

    That is what its last nodes gave, as `rune run` prints it. The branch rests meanwhile and costs nothing.
    Where the other execution fails or is cancelled, this node fails with `CHILD_FAILED`; where this one ends,
    so does the other. What is called is looked up when the workflow is checked or stored, and becomes part of
    its definition.
    """

    name: ClassVar = "workflow"
    effects: ClassVar = False
    calls: ClassVar = "workflow"
    verbatim: ClassVar = ("workflow",)

    workflow: Annotated[
        str,
        Meta(
            description="Which one: a file beside this one, or the id or the name of a stored workflow.",
            min_length=1,
        ),
    ]
    input: Annotated[Any, Meta(description="What it starts with: its `$trigger`.")] = None

    async def run(self, context: StepContext) -> Outcome:
        return Call(self.workflow, {} if self.input is None else self.input)
