"""Driving a decision: what it asks of State, one question after the other, and what follows."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.operations import Answer, Operation
from rune.core.outcome import Done, Outcome
from rune.core.plan import plan
from rune.core.step import Follow, Snapshot, Step
from tests.core.graphs import (
    frame,
    plain,
    raw,
)

__all__ = ["ERROR", "ITEM", "drive", "ended", "merge_id", "replay", "where"]

ERROR = ErrorInfo("broken", "BROKEN", node="a")
ITEM = (frame("s", 1),)


def replay(record: bytes) -> Outcome:
    return Done(raw(msgspec.json.decode(record)))


def drive(at: Step, outcome: Outcome, *answers: Answer) -> tuple[list[list[Operation]], Follow]:
    """Answer each question in turn (with nothing special, when the answers run out)."""
    asked: list[list[Operation]] = []
    deciding = plan(at, outcome, replay)
    left = list(answers)
    try:
        asked.append(list(next(deciding)))
        while True:
            asked.append(list(deciding.send(left.pop(0) if left else Answer())))
    except StopIteration as stop:
        assert not left, "not everything was asked"
        return asked, stop.value


def ended(data: bytes | None) -> Any:
    """The context that a branch left."""
    assert data is not None
    return plain(msgspec.json.decode(data, type=Snapshot).context)


def where(follow: Follow) -> list[str]:
    return [edge.dst for edge, _ in follow.children]


def merge_id(id: str) -> str:
    """The merge at a node, in the execution's own scope."""
    return derive("exec", "", id)
