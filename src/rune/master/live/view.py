"""What is known of an execution that is watched, and how to tell it to somebody who knows some of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from rune.history.changes import Head, Reading
from rune.history.items import Split
from rune.master.answering import iso
from rune.master.live.framing import Framing, frame
from rune.master.live.runs import ItemStates, Range
from rune.master.views import counts

__all__ = ["Scopes", "View"]

Scopes = frozenset[str]
"""The barriers whose items somebody looks at."""

_KEPT = 32
"""Readings that are kept apart, for those who lag behind."""


class _Tick(msgspec.Struct):
    """Which parts one reading has touched."""

    since: int
    seq: int
    nodes: list[str]
    splits: list[str]
    items: dict[str, list[Range]]


class View:
    """An execution as of `seq`; every event is made once for all who need it."""

    def __init__(self) -> None:
        self.seq = -1
        self.ended = False
        self.scopes: dict[str, ItemStates] = {}
        self._head: dict[str, Any] = {}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._splits: dict[str, Split] = {}
        self._ticks: deque[_Tick] = deque(maxlen=_KEPT)
        self._made: dict[tuple[Framing, int | None, Scopes], bytes] = {}

    def absorb(self, reading: Reading) -> None:
        """Take in what was read since `seq`; what was known before may be in it again."""
        since, self.seq = self.seq, reading.head.seq
        self.ended = reading.head.ended_at is not None
        self._head = _head(reading.head)
        self._nodes.update({id: counts(found) for id, found in reading.nodes.items()})
        self._splits.update(reading.splits)
        items: dict[str, list[Range]] = {}
        for scope, runs in reading.items.items():
            states = self.scopes.setdefault(scope, ItemStates())
            items[scope] = states.put(runs)
            split = self._splits.get(scope)
            if split is not None:
                states.grow(split.total)
            if self.ended or (split is not None and split.closed):
                items[scope] += states.close()
        if since >= 0:
            self._ticks.append(_Tick(since, self.seq, [*reading.nodes], [*reading.splits], items))
        self._made.clear()

    def drop(self, scopes: Iterable[str]) -> None:
        """Forget the items of these splits: nobody looks at them any more."""
        for scope in scopes:
            self.scopes.pop(scope, None)

    def snapshot(self, framing: Framing, scopes: Scopes) -> bytes:
        """Everything."""
        made = self._made.get((framing, None, scopes))
        if made is None:
            items = {
                scope: {"states": [(state, count) for _, state, count in self.scopes[scope].runs()]}
                for scope in sorted(scopes & self.scopes.keys())
            }
            splits = [split for split in self._splits.values() if _is_shown(split, scopes)]
            data = {**self._heading(), "nodes": self._nodes, "splits": splits, "scopes": items}
            made = self._made[framing, None, scopes] = frame(framing, "snapshot", str(self.seq), data)
        return made

    def change(self, framing: Framing, since: int, scopes: Scopes) -> bytes | None:
        """What has changed since `since`; None if that is too long ago to tell."""
        made = self._made.get((framing, since, scopes))
        if made is not None:
            return made
        if not self._ticks or since < self._ticks[0].since:
            return None
        ticks = [tick for tick in self._ticks if tick.seq > since]
        nodes = {id: self._nodes[id] for tick in ticks for id in tick.nodes}
        touched = {barrier: self._splits[barrier] for tick in ticks for barrier in tick.splits}
        items: dict[str, Any] = {}
        for scope in sorted(scopes & self.scopes.keys()):
            ranges = [range for tick in ticks for range in tick.items.get(scope, ())]
            if ranges:
                items[scope] = {"runs": self.scopes[scope].runs(ranges)}
        splits = [split for split in touched.values() if _is_shown(split, scopes)]
        data = {**self._heading(), "nodes": nodes, "splits": splits, "scopes": items}
        made = self._made[framing, since, scopes] = frame(framing, "change", str(self.seq), data)
        return made

    def end(self, framing: Framing) -> bytes:
        """That nothing more will come."""
        return frame(framing, "end", str(max(0, self.seq)), self._heading())

    def _heading(self) -> dict[str, Any]:
        return {"seq": self.seq, "execution": self._head}


def _head(head: Head) -> dict[str, Any]:
    return {
        "id": head.id,
        "status": head.status,
        "started_at": iso(head.started_at),
        "ended_at": iso(head.ended_at),
        "duration_ms": head.duration_ms,
        "error": head.error,
        "reason": head.reason,
    }


def _is_shown(split: Split, scopes: Scopes) -> bool:
    """Splits of the execution itself, those that are looked at, and those inside of these."""
    return split.scope is None or split.scope in scopes or split.barrier in scopes
