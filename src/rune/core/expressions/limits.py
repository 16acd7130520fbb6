"""The bounds of the language and the budget of one evaluation."""

from __future__ import annotations

from rune.core.expressions.errors import LimitExceeded

__all__ = [
    "MAX_CHAIN",
    "MAX_INTEGER",
    "MAX_NESTING",
    "MAX_PATTERN",
    "MAX_PATTERN_WEIGHT",
    "MAX_SIZE",
    "MAX_SOURCE",
    "MAX_STEPS",
    "MAX_SUBJECT",
    "REGEX_SECONDS",
    "REGEX_SECONDS_IN_ALL",
    "SMALL",
    "Budget",
    "FoldingBudget",
    "out_of_memory",
    "too_deep",
]

MAX_SOURCE = 10_000
"""Characters of one expression."""

MAX_NESTING = 50
"""Brackets, unary operators and branches inside one another."""

MAX_CHAIN = 150
"""Operators or filters applied one upon another."""

MAX_STEPS = 1_000_000
"""Elements visited by library functions in one evaluation; a step is a microsecond or less."""

MAX_SIZE = 16_000_000
"""Characters that one evaluation may produce; a list element counts as eight."""

MAX_INTEGER = 2**256
"""Magnitude of an integer that arithmetic may produce."""

MAX_PATTERN = 500
"""Characters of a regular expression."""

MAX_PATTERN_WEIGHT = 5_000
"""Atoms of a regular expression once its counted repeats are written out."""

MAX_SUBJECT = 1_000_000
"""Characters of a text that a regular expression is applied to."""

REGEX_SECONDS = 0.1
"""Time for one use of a regular expression."""

REGEX_SECONDS_IN_ALL = 0.5
"""Time for all regular expressions of one evaluation."""

SMALL = 256
"""Results up to this size are not charged: their number is bounded by the source's length."""

_SHORT_SCAN = 4096


class Budget:
    """What one evaluation may still spend."""

    # Class attributes, not __init__: most evaluations never touch them, and making a budget must be cheap.
    steps = MAX_STEPS
    size = MAX_SIZE
    regex_seconds = REGEX_SECONDS_IN_ALL

    def spend(self, steps: int) -> None:
        """Charge the elements that a function is about to visit."""
        self.steps -= steps
        if self.steps < 0:
            raise LimitExceeded(f"more than {MAX_STEPS:,} steps in one evaluation", bound="steps")

    def grow(self, size: int) -> None:
        """Charge the characters that are about to be produced."""
        self.size -= size
        if self.size < 0:
            raise LimitExceeded(
                f"more than {MAX_SIZE:,} characters of output size in one evaluation", bound="output size"
            )

    def scan(self, length: int) -> None:
        """Charge for looking through a text if that is long."""
        if length > _SHORT_SCAN:
            self.spend(length >> 8)

    def collect(self, count: int) -> None:
        """Charge the elements of a list that is about to be produced."""
        self.spend(count)
        self.grow(8 * count)


class FoldingBudget(Budget):
    """What the compiler may spend on a constant part; what costs more waits for the evaluation."""

    steps = 1_000
    size = 10_000
    regex_seconds = 0.0


def out_of_memory() -> LimitExceeded:
    """Return the refusal of what the machine has no room for."""
    return LimitExceeded("there is not enough memory for the evaluation", bound="memory")


def too_deep(what: str) -> LimitExceeded:
    """Return the refusal of something that is nested too deep for the interpreter."""
    return LimitExceeded(f"{what} is nested too deep", bound="nesting")
