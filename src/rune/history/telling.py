"""What one message says: of which row, when, and in words that every database takes."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import msgspec
from msgspec import Raw

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.ids import content_hash, derive
from rune.core.messages import NodeStatusMessage
from rune.history.rows import StepRow

__all__ = [
    "INLINE",
    "Attempt",
    "clean",
    "gathers",
    "moment",
    "resumes",
    "retried",
    "step_key",
    "told",
    "united",
]

INLINE = 1024
"""Bytes of an output that are kept with its step; a larger one is a value."""

_encode = msgspec.json.Encoder().encode


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A try of a step that failed, and was followed by another."""

    attempt: int
    at: float
    duration_ms: int
    error: ErrorInfo | None = None
    retry_at: str | None = None


_attempts_decoder = msgspec.json.Decoder(list[Attempt])


def step_key(message: NodeStatusMessage) -> tuple[str, str, int, str]:
    """The row that a message speaks of: a branch that came to a join speaks of that."""
    step, frames = message.step, message.lineage_stack
    if message.join and message.error is None:
        step = message.join
        frames = frames[:-1] if gathers(message) else frames
    if not frames:
        return (message.execution_id, "", 0, step)
    return (message.execution_id, frames[-1].barrier, frames[-1].item_index, step)


def gathers(message: NodeStatusMessage) -> bool:
    """Whether the join a branch came to is the one that closes the fan-out around it."""
    return bool(message.lineage_stack) and message.join == _gather(message.lineage_stack[-1].barrier)


def retried(message: NodeStatusMessage) -> bool:
    """Whether the step failed, and is to be tried again."""
    return message.status == "failed" and message.details is not None and "retry_at" in message.details


def told(message: NodeStatusMessage, at: float) -> tuple[StepRow, dict[str, bytes]]:
    """What a message says of a step, and what of it is too large to be kept with it, by hash."""
    _, barrier, item_index, step = step_key(message)
    retry = retried(message)
    ended = message.status in ("success", "failed") and not retry
    error = message.error
    row = StepRow(
        execution_id=message.execution_id,
        barrier=barrier,
        item_index=item_index,
        step=step,
        node_id=message.node_id,
        status="waiting" if retry else message.status,
        attempt=1 if step != message.step else message.attempt,
        at=at,
        started_at=at - message.duration_ms / 1000,
        ended_at=at if ended else None,
        duration_ms=message.duration_ms if ended else None,
        port=message.port if message.status == "success" or message.handled else None,
        output=None,
        output_hash=None,
        output_size=None,
        error=_encode(error).decode() if error is not None else None,
        error_code=clean(error.code) if error is not None else None,
        details=_encode(message.details).decode() if message.details else None,
        attempts=None,
        seq=0,
    )
    if retry:
        row.attempts = _encode([_attempt(message, at)]).decode()
    large: dict[str, bytes] = {}
    if message.status != "running":
        found = _kept(message.output, message.output_ref, large)
        row.output, row.output_hash, row.output_size = found
    if message.sets is not None:
        row.turn = message.sets.turn
        row.sets, row.sets_hash, row.sets_size = _kept(message.sets.values, message.sets.ref, large)
    return row, large


def _kept(
    raw: Raw | None, ref: Ref | None, large: dict[str, bytes]
) -> tuple[str | None, str | None, int | None]:
    """A value as a row has it: its text or its hash, and its size; one that is too large goes to `large`."""
    if ref is not None:
        return None, ref.hash, ref.size
    if raw is None:
        return None, None, None
    data = bytes(raw)
    if len(data) <= INLINE:
        return data.decode(errors="replace"), None, len(data)
    hash = content_hash(data)
    large[hash] = data
    return None, hash, len(data)


def _attempt(message: NodeStatusMessage, at: float) -> Attempt:
    retry_at = (message.details or {}).get("retry_at")
    return Attempt(message.attempt, at, message.duration_ms, message.error, str(retry_at))


def united(one: str | None, other: str | None) -> str | None:
    """The attempts of both, each once, as it was told first."""
    if one is None or other is None or one == other:
        return one or other
    both = [*_attempts_decoder.decode(one), *_attempts_decoder.decode(other)]
    both.sort(key=lambda attempt: (attempt.attempt, -attempt.at))
    return _encode(list({attempt.attempt: attempt for attempt in both}.values())).decode()


def resumes(details: str | None) -> float | None:
    """When a step that rests goes on, if that is known."""
    if details is None or not ("resume_at" in details or "retry_at" in details):
        return None
    found = msgspec.json.decode(details)
    at = found.get("resume_at") or found.get("retry_at")
    return moment(at) if isinstance(at, str) else None


@lru_cache(4096)
def _gather(barrier: str) -> str:
    """The step that gathers a fan-out's items, as the engine names it."""
    return derive(barrier, "~gather")


@lru_cache(4096)
def moment(text: str) -> float | None:
    """Seconds since the epoch; None if this is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def clean(text: str) -> str:
    """A text that every database takes."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
