"""Outcomes and errors of node code in the form in which they leave the worker: JSON, fitting, masked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.errors import EngineError, ErrorInfo, NodeError
from rune.core.expressions import ExpressionError
from rune.core.json import as_json
from rune.core.node import Role
from rune.core.outcome import Arrive, Call, Done, Failed, FanOut, Join, Outcome, Sleep
from rune.core.workflow import Node

__all__ = ["decode_outcome", "sealed", "told"]

Masker = Callable[[bytes], bytes]

_ROLES: dict[type, tuple[Role, str]] = {
    FanOut: (Role.SPLIT, "only a split may fan out"),
    Arrive: (Role.GATHER, "only an aggregator may gather"),
    Join: (Role.MERGE, "only a merge may join"),
}

_outcome_decoder: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)


def sealed(node: Node, outcome: Outcome, mask: Masker) -> Outcome:
    """The outcome with its data as JSON bytes; NodeError if it cannot be, or does not fit the node."""
    role, why = _ROLES.get(type(outcome), (node.role, ""))
    if node.role is not role:
        raise NodeError(f"returned {type(outcome).__name__}: {why}", "NODE_OUTCOME")
    if isinstance(outcome, Done) and outcome.sets:
        if node.deterministic:
            # It has no record, by which they would be set once.
            raise EngineError("a node that always gives the same outcome sets variables", "NODE_OUTCOME")
        if not node.type.trusted:
            as_json(outcome.sets)
    made = _raw(outcome, trusted=node.type.trusted)
    if isinstance(made, Failed):
        return msgspec.structs.replace(made, error=_masked_error(_encodable(made.error, node), node, mask))
    # What a split reads may have been signed for, by the source itself.
    read = isinstance(made, FanOut) and made.source.reads > 0
    return _masked(made, mask) if node.credentials or node.type.signs or read else made


def told(node: Node, error: BaseException, mask: Masker) -> ErrorInfo:
    """What the outside is told of an error that node code raised."""
    match error:
        case NodeError():
            info = ErrorInfo(error.message, error.code, error.details, node.id)
        case ExpressionError():
            hint = f"; {error.hint}" if error.hint else ""
            info = ErrorInfo(f"{error.message}{hint}", error.code, None, node.id)
        case _:
            info = ErrorInfo(f"{type(error).__name__}: {_text_of(error)}", "NODE_RAISED", None, node.id)
    return _masked_error(_encodable(info, node), node, mask)


def decode_outcome(record: bytes) -> Outcome:
    """A recorded outcome, its data as JSON bytes again."""
    return _raw(_outcome_decoder.decode(record), trusted=True)


def _raw(outcome: Outcome, *, trusted: bool) -> Outcome:
    match outcome:
        case Done():
            output = as_json(outcome.output, trusted=trusted)
            return Done(
                output,
                outcome.port,
                outcome.working,
                outcome.refs,
                outcome.reused,
                outcome.error,
                outcome.details,
                outcome.sets,
            )
        case Arrive():
            return Arrive(as_json(outcome.result, trusted=trusted), outcome.folds)
        case Sleep():
            return Sleep(outcome.until, as_json(outcome.output, trusted=trusted))
        case Call():
            return Call(outcome.workflow, as_json(outcome.input, trusted=trusted), outcome.stored)
        case FanOut():
            if not trusted:
                as_json(outcome.source.items)
                as_json(outcome.source.lazy)
            return outcome
        case Failed() | Join():
            return outcome
        case _:
            raise NodeError(f"returned {type(outcome).__name__}, which is no Outcome", "NODE_OUTCOME")


def _masked(outcome: Outcome, mask: Masker) -> Outcome:
    match outcome:
        case Done(error=None, details=None, sets=None) | Sleep():
            return msgspec.structs.replace(outcome, output=Raw(mask(bytes(outcome.output))))
        case Done():
            data = msgspec.json.encode(outcome)
            masked = mask(data)
            if masked is data:
                return outcome
            plain = msgspec.json.decode(masked, type=Done)
            return msgspec.structs.replace(plain, output=Raw(mask(bytes(outcome.output))))
        case Call():
            return msgspec.structs.replace(outcome, input=Raw(mask(bytes(outcome.input))))
        case Arrive():
            return msgspec.structs.replace(outcome, result=Raw(mask(bytes(outcome.result))))
        case FanOut():
            source = msgspec.structs.replace(outcome.source, items=_masked_list(outcome.source.items, mask))
            labels, keys = _masked_list(outcome.labels, mask), _masked_list(outcome.keys, mask)
            return msgspec.structs.replace(outcome, source=source, labels=labels, keys=keys)
        case _:
            return outcome


def _masked_list(values: list[Any] | None, mask: Masker) -> list[Any] | None:
    return None if values is None else msgspec.json.decode(mask(msgspec.json.encode(values)), type=list[Any])


def _masked_error(info: ErrorInfo, node: Node, mask: Masker) -> ErrorInfo:
    if not (node.credentials or node.type.signs or node.role is Role.SPLIT):
        return info
    return msgspec.json.decode(mask(msgspec.json.encode(info)), type=ErrorInfo)


def _encodable(info: ErrorInfo, node: Node) -> ErrorInfo:
    """The same error, if need be with less: an error must never be what fails."""
    info = msgspec.structs.replace(info, node=info.node or node.id)
    try:
        msgspec.json.encode(info)
    except (TypeError, ValueError, RecursionError, OverflowError):
        details = {"repr": _clean(_text_of(info.details)[:2000])} if info.details else None
        return ErrorInfo(_clean(str(info.message)), _clean(str(info.code)), details, info.node)
    return info


def _clean(text: str) -> str:
    """The text without what UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the node's own classes may do anything
        return f"<{type(value).__name__} that cannot be shown>"
