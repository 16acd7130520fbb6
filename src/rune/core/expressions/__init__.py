"""The expression language: small, typed, bounded, compiled to closures."""

from __future__ import annotations

from rune.core.expressions.comparison import COMPARISONS, compare
from rune.core.expressions.errors import (
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    LimitExceeded,
    ReferenceMissing,
)
from rune.core.expressions.expression import Expression, compile_expression
from rune.core.expressions.library import FUNCTIONS, TESTS, Function
from rune.core.expressions.ordering import sort_key
from rune.core.expressions.paths import Scope
from rune.core.expressions.suggest import suggest
from rune.core.expressions.templates import Template, compile_template
from rune.core.expressions.values import kind_of, to_text, truth

__all__ = [
    "COMPARISONS",
    "FUNCTIONS",
    "TESTS",
    "Expression",
    "ExpressionError",
    "ExpressionSyntaxError",
    "ExpressionTypeError",
    "Function",
    "LimitExceeded",
    "ReferenceMissing",
    "Scope",
    "Template",
    "compare",
    "compile_expression",
    "compile_template",
    "kind_of",
    "sort_key",
    "suggest",
    "to_text",
    "truth",
]
