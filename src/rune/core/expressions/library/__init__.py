"""The fixed library of functions and tests."""

from __future__ import annotations

# Each module registers its functions as it is imported.
from rune.core.expressions.library import (  # noqa: F401
    collections,
    conversion,
    encoding,
    numbers,
    patterns,
    selection,
    tests,
    text,
    time,
)
from rune.core.expressions.library.registry import FUNCTIONS, TESTS, Function

__all__ = ["FUNCTIONS", "TESTS", "Function"]
