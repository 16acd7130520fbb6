"""Every error of Rune, in one tree; each kind asks for one action.

RuneError
├── DefinitionError        the workflow is wrong: refuse it, show every problem (exit code 2)
├── NodeError              a node failed: the node's retry and error policy decide
│   └── EngineError        the engine cannot go on with this step: as above, but `halt` ends as `failed`
│       └── ValueMissing   a stored value is gone: as above, unless it went with its execution
├── StateLost              State was emptied under an execution: fail it, for it can never end
├── MessageError           a message makes no sense: dead-letter it, with the reason
├── ConflictError          what is stored contradicts what is to be written: tell whoever asked
└── InfrastructureError    State or Broker is out of reach: hold the work, lose nothing (exit code 3)
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "ConflictError",
    "DefinitionError",
    "EngineError",
    "ErrorInfo",
    "InfrastructureError",
    "MessageError",
    "NodeError",
    "Problem",
    "RuneError",
    "StateLost",
    "ValueMissing",
]


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error object of RFC 001 §6.2, with the node it happened in."""

    message: str
    code: str
    details: dict[str, Any] | None = None
    node: str | None = None


class RuneError(Exception):
    """Anything Rune raises on purpose."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a definition, and where."""

    code: str
    message: str
    path: tuple[str | int, ...] = ()
    hint: str | None = None
    severity: str = "error"
    offset: int = 0
    """Characters into the text at `path`, where the trouble is inside a string."""
    line: int | None = None
    column: int | None = None


class DefinitionError(RuneError):
    """A workflow definition that cannot be run, with all its problems."""

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        self.problems = problems
        self.source = source
        super().__init__("; ".join(f"{p.code}: {p.message}" for p in problems))


class NodeError(RuneError):
    """A node's own failure: what a user sees in the status, in `$error` and in an item's slot."""

    def __init__(
        self,
        message: str,
        code: str = "NODE_ERROR",
        details: dict[str, Any] | None = None,
        *,
        retryable: bool = False,
        tells: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.details = details
        self.retryable = retryable
        self.tells = tells
        """What its status tells besides the error."""


class EngineError(NodeError):
    """What the engine itself cannot go on with: an unknown type, a time-out, a limit."""


class ValueMissing(EngineError):
    """A stored value that is gone."""

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, "VALUE_MISSING", details)


class StateLost(RuneError):
    """State no longer knows an execution that it knew."""


class MessageError(RuneError):
    """A message that no worker can make sense of."""


class ConflictError(RuneError):
    """A write that a constraint of the database refuses: a name that is taken, a thing that is gone."""


class InfrastructureError(RuneError):
    """State or Broker cannot be reached or written."""
