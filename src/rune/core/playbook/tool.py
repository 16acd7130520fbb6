"""What a tool of playbooks is: typed parameters, and a call that gives the fields of an outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

__all__ = ["Tool", "ToolContext", "ToolError", "outcome_of_error"]


class ToolContext(StepContext, Protocol):
    """What a running tool sees of the world."""

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the step run."""

    @property
    def old_args(self) -> Mapping[str, Any]:
        """What code of older playbooks also expects as variables."""

    @property
    def task(self) -> str:
        """The label of the task."""


class Tool(NodeType, kw_only=True):
    """One kind of task. Its fields are its parameters, an instance holds those of one attempt."""

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        """Do it: `result`, and the helpers of this kind, such as `http`."""
        raise NotImplementedError

    async def run(self, context: StepContext) -> Outcome:
        """As a node of its own a tool gives its result."""
        return Done((await self.call(context)).get("result"))  # type: ignore[arg-type]


class ToolError(NodeError):
    """A task's failure: `kind` says which, the helpers are those of the tool."""

    def __init__(
        self,
        message: str,
        code: str,
        *,
        kind: str,
        retryable: bool = False,
        details: dict[str, Any] | None = None,
        helpers: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code, details, retryable=retryable)
        self.kind = kind
        self.helpers = helpers or {}


def outcome_of_error(error: NodeError) -> dict[str, Any]:
    """The fields of an outcome that is this failure."""
    kind = error.kind if isinstance(error, ToolError) else "error"
    info = {
        **(error.details or {}),
        "kind": kind,
        "retryable": error.retryable,
        "code": error.code,
        "message": error.message,
    }
    helpers = error.helpers if isinstance(error, ToolError) else {}
    return {"status": "error", "result": None, "error": info, **helpers}
