"""A histogram that costs next to nothing to feed, and is read when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

__all__ = ["Histogram"]


class Histogram:
    """How many numbers were at most each bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, float("inf"))
        self._counts = [0] * len(self._bounds)
        self.total = 0.0
        """The sum of all numbers."""

    def add(self, number: float) -> None:
        """Count a number."""
        self._counts[bisect_left(self._bounds, number)] += 1
        self.total += number

    @property
    def count(self) -> int:
        """How many numbers there were."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Each bound, the last one infinity, with how many numbers were at most that."""
        return zip(self._bounds, accumulate(self._counts), strict=True)
