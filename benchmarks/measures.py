"""What a benchmark tells: a number, its unit, and the bound it is held to."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

__all__ = ["Measure", "Table", "ratio"]


@dataclass(frozen=True)
class Measure:
    """One line of the table."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        """The bound, as it is written."""
        if self.at_most is not None:
            return f"≤ {_number(self.at_most)} {self.unit}"
        return f"≥ {_number(self.at_least)} {self.unit}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        """Whether the bound holds."""
        if self.at_most is not None:
            return "ok" if self.value <= self.at_most else "MISSED"
        if self.at_least is not None:
            return "ok" if self.value >= self.at_least else "MISSED"
        return ""


class Table:
    """Prints measures as they come."""

    def __init__(self, title: str) -> None:
        print(f"\n{title}")

    def add(self, measure: Measure) -> Measure:
        """Print one."""
        shown = f"{_number(measure.value)} {measure.unit}"
        line = f"  {measure.name:<46} {shown:>16}  {measure.target:<16} {measure.verdict:<7} {measure.note}"
        print(line.rstrip(), flush=True)
        return measure


def ratio(times: list[float], references: list[float]) -> float:
    """How many times as long; of medians, because a machine has other things to do."""
    return median(times) / median(references)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
