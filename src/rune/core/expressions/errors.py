"""The errors of the expression language; nothing else leaves it.

ExpressionError
├── ExpressionSyntaxError   EXPRESSION_SYNTAX   the source is not an expression
├── ReferenceMissing        REFERENCE_MISSING   a name, key or index is not there
├── ExpressionTypeError     EXPRESSION_TYPE     a value does not fit what is done with it
└── LimitExceeded           EXPRESSION_LIMIT    a bound of the language was reached
"""

from __future__ import annotations

__all__ = [
    "ExpressionError",
    "ExpressionSyntaxError",
    "ExpressionTypeError",
    "LimitExceeded",
    "ReferenceMissing",
]


class ExpressionError(Exception):
    """An expression could not be compiled or evaluated."""

    code = "EXPRESSION_ERROR"

    def __init__(
        self, message: str, *, offset: int | None = None, hint: str | None = None, source: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint
        self.source = source
        self.where: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def locate(self, offset: int) -> None:
        """Set the position unless a more exact one is known."""
        if self.offset is None:
            self.offset = offset


class ExpressionSyntaxError(ExpressionError):
    """The source is not an expression."""

    code = "EXPRESSION_SYNTAX"


class ReferenceMissing(ExpressionError):
    """A path leads to nothing; `path` is as written, `reached` the part of it that exists."""

    code = "REFERENCE_MISSING"

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        reached: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message, offset=offset, hint=hint, source=source)
        self.path = path
        self.reached = reached


class ExpressionTypeError(ExpressionError):
    """A value is of a type, or has a form, that the operation does not take."""

    code = "EXPRESSION_TYPE"


class LimitExceeded(ExpressionError):
    """A bound was reached; `bound` is its name."""

    code = "EXPRESSION_LIMIT"

    def __init__(
        self,
        message: str,
        *,
        bound: str = "",
        offset: int | None = None,
        hint: str | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(message, offset=offset, hint=hint, source=source)
        self.bound = bound
