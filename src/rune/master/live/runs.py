"""The states of a split's items, a byte each, told in runs of equal ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rune.history.items import ItemState, Run

__all__ = ["ItemStates", "Range"]

_STATES: tuple[ItemState, ...] = ("pending", "running", "succeeded", "failed", "skipped")
_CODE = {name: bytes([code]) for code, name in enumerate(_STATES)}
_EQUAL = re.compile(rb"(.)\1*", re.DOTALL)

Range = tuple[int, int]
"""First item, and the first one behind."""


class ItemStates:
    """What each item of one split is at."""

    def __init__(self, total: int = 0) -> None:
        self._states = bytearray(total)

    def __len__(self) -> int:
        return len(self._states)

    def grow(self, total: int) -> None:
        """There are at least so many items."""
        self._states.extend(bytes(max(0, total - len(self._states))))

    def put(self, runs: Iterable[Run]) -> list[Range]:
        """Items are at these states now; which ones."""
        put = []
        for first, state, count in runs:
            self.grow(first + count)
            self._states[first : first + count] = _CODE[state] * count
            put.append((first, first + count))
        return put

    def close(self) -> list[Range]:
        """The split is over: what nobody has heard of was skipped; which ones."""
        pending = [run for run in self.runs() if run[1] == "pending"]
        return self.put((first, "skipped", count) for first, _, count in pending)

    def runs(self, ranges: Iterable[Range] | None = None) -> list[Run]:
        """All states from the first item on, or those of the items in some ranges."""
        wanted = [(0, len(self._states))] if ranges is None else _merged(ranges)
        return [
            (run.start(), _STATES[self._states[run.start()]], run.end() - run.start())
            for start, stop in wanted
            for run in _EQUAL.finditer(self._states, start, stop)
        ]


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """The same items in ranges that do not touch."""
    merged: list[Range] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged
