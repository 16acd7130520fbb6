"""Commits as the scripts read them, and the scripts' answers as the engine reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, assert_never

import msgspec
from msgspec import Raw

from rune.core.errors import EngineError
from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    End,
    Ending,
    Expire,
    Extend,
    Lease,
    Open,
    Operation,
    Progress,
    Record,
    Rule,
    Seed,
    Settle,
    Skip,
    Timer,
    TryAgain,
)
from rune.core.rows import Fold

__all__ = ["decode_answer", "decode_folds", "decode_lease", "encode_commits", "encode_seeds", "pack"]

Folds = tuple[tuple[float | int, int, float | int, float | int], ...]
_EXACT = 1 << 53
"""Integers up to here are doubles, too."""

pack = msgspec.msgpack.Encoder().encode


# --- commits -------------------------------------------------------------------------------------------


def encode_commits(commits: Sequence[Commit]) -> bytes:
    """What `apply.lua` reads."""
    return pack(
        [
            (
                c.step,
                c.place,
                [_operation(op) for op in c.operations],
                c.started_at,
                *((c.reads,) if c.reads else ()),
            )
            for c in commits
        ]
    )


def encode_seeds(seeds: Sequence[Seed]) -> bytes:
    """What `seed.lua` reads."""
    return pack([(s.step, s.place, _opaque(s.outcome), _variables(s.sets), s.turn) for s in seeds])


def _operation(op: Operation) -> tuple[Any, ...]:
    match op:
        case Settle():
            folds = [_number(value) for value in op.folds]
            return "settle", op.change, _opaque(op.end), op.path, op.node, folds, _opaque(op.error)
        case Record():
            return "record", _opaque(op.outcome), op.fence, _variables(op.sets)
        case ArriveAt():
            return "arrive", _rule(op.rule), op.order, _opaque(op.payload)
        case Skip():
            return "skip", _rule(op.rule), op.member, op.weight
        case Open() | Extend():
            return _fan_out(op)
        case Arm():
            return "arm", _timer(op.timer)
        case TryAgain():
            return "again", op.attempt, _timer(op.timer)
        case Expire():
            return "expire", op.target, _timer(op.timer), op.idle, op.since
        case End():
            return "end", op.status, _opaque(op.error), op.reason, _opaque(op.context)
        case _:
            assert_never(op)


def _fan_out(op: Open | Extend) -> tuple[Any, ...]:
    if isinstance(op, Extend):
        return "extend", op.count, op.ended, _opaque(op.refill), _opaque(op.release), _opaque(op.failure)
    return (
        "open",
        op.barrier,
        op.total,
        op.width,
        _opaque(op.release),
        op.policy.tolerated,
        op.policy.need_success,
        op.window,
        op.published,
        op.keep_results,
        _timer(op.timer) if op.timer else None,
        _opaque(op.refill),
        op.lazy,
    )


def _variables(sets: Sequence[tuple[str, bytes]]) -> list[str | Raw | None]:
    return [part for name, data in sets for part in (name, _opaque(data))]


def _rule(rule: Rule) -> tuple[Any, ...]:
    return rule.merge, rule.expected, rule.need, _timer(rule.timer) if rule.timer else None


def _timer(timer: Timer) -> tuple[Any, ...]:
    return timer.id, timer.due, _opaque(timer.task), timer.sleeping


def _opaque(data: bytes | None) -> Raw | None:
    # As MessagePack's `str`: Redis's reader is older than its `bin`, and does not mind what the bytes are.
    return None if data is None else Raw(b"\xdb" + len(data).to_bytes(4) + data)


def _number(value: float | int) -> tuple[Any, ...]:
    """A number's text, and doubles that add up to it exactly, the largest first."""
    if isinstance(value, float):
        value.as_integer_ratio()  # refuses what is no number
        return repr(value), value
    if -_EXACT <= value <= _EXACT:
        return str(int(value)), float(value)
    text, parts = str(value), []
    try:
        while value:
            parts.append(float(value))
            value -= int(parts[-1])
    except OverflowError as error:
        raise EngineError("a number to fold has more than 308 digits", "NUMBER_TOO_LARGE") from error
    return text, *parts


# --- answers -------------------------------------------------------------------------------------------


def decode_answer(reply: Any) -> Answer:
    """One answer of `apply.lua`."""
    answer = Answer()
    if reply == 0:
        return answer
    fields = iter(reply)
    for name, value in zip(fields, fields, strict=True):
        match name:
            case b"gone" | b"dropped" | b"rearmed":
                setattr(answer, name.decode(), True)
            case b"opened" | b"dead":
                setattr(answer, name.decode(), [merge.decode() for merge in value])
            case b"progress":
                answer.progress = Progress(*value)
            case b"refill":
                first, stop, *reads = value.split()
                answer.refill, answer.reads = (int(first), int(stop)), bool(reads)
            case b"arrived":
                answer.arrived = value[0], value[1]
            case b"ending":
                answer.ending = _ending(value)
            case _:
                setattr(answer, name.decode(), value)
    return answer


def _ending(value: Any) -> Ending:
    status, at, error, reason, contexts, started_at = value
    return Ending(status.decode(), float(at), contexts, error, reason.decode(), float(started_at or 0))


def decode_lease(reply: Any) -> Lease:
    """One answer of `lease.lua`."""
    match reply:
        case [b"fence", fence]:
            return Lease(fence=fence)
        case [b"record", record, turn]:
            return Lease(record=record, turn=turn)
        case [b"busy", until]:
            return Lease(busy_until=float(until))
        case b"dropped":
            return Lease(dropped=True)
        case _:
            return Lease(gone=True)


def decode_folds(packed: bytes | None) -> Folds:
    """What `folds.lua` kept: (sum, count, least, greatest) each."""
    return tuple(_fold(*fold) for fold in msgspec.msgpack.decode(packed)) if packed else ()


def _fold(
    whole: int, count: int, least: list[str], greatest: list[str], partials: str
) -> tuple[float | int, int, float | int, float | int]:
    bounds = _read(least[0]), _read(greatest[0])
    parts = [float(part) for part in partials.split()]
    beyond = [part for part in parts if not math.isfinite(part)]
    if beyond:
        return beyond[0], count, *bounds
    total = sum(map(Fraction, parts), Fraction())
    return Fold(total.numerator, total.denominator, bool(whole), count, *bounds).result()


def _read(text: str) -> float | int:
    return float(text) if "." in text or "e" in text else int(text)
