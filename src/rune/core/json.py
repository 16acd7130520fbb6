"""Node outputs as JSON bytes, refusing what JSON cannot hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from rune.core.errors import NodeError

__all__ = ["as_json"]

_DEEPEST = 200


def _refuse(value: Any) -> NoReturn:
    raise NodeError(
        f"returned {_article(value)}, which JSON cannot hold; return text, numbers, lists or maps",
        "OUTPUT_NOT_JSON",
    )


def _article(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


_encoder = msgspec.json.Encoder(enc_hook=_refuse)


def as_json(value: Any, *, trusted: bool = False) -> Raw:
    """The value's JSON. What comes from code that is not trusted is looked through first."""
    if isinstance(value, Raw):
        return value
    if not trusted:
        _look_through(value)
    try:
        return Raw(_encoder.encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NodeError(f"returned what JSON cannot hold: {error}", "OUTPUT_NOT_JSON") from error


def _look_through(value: Any, depth: int = 0) -> None:
    if depth > _DEEPEST:
        message = f"returned a value nested deeper than {_DEEPEST} levels, or one that contains itself"
        raise NodeError(message, "OUTPUT_NOT_JSON")
    match value:
        case float() if not math.isfinite(value):
            raise NodeError(f"returned {value}, which JSON cannot hold", "OUTPUT_NOT_JSON")
        case dict():
            _look_at_keys(value)
            for inner in value.values():
                _look_through(inner, depth + 1)
        case list() | tuple():
            for inner in value:
                _look_through(inner, depth + 1)
        case bytes() | bytearray() | memoryview() | set() | frozenset():
            _refuse(value)
        case _:
            for name in _fields(value):
                _look_through(getattr(value, name), depth + 1)


def _fields(value: Any) -> Iterable[str]:
    """The fields of a Struct or a dataclass, which are encoded as maps."""
    kind = type(value)
    fields: Iterable[str] = getattr(kind, "__struct_fields__", ())
    return fields or getattr(kind, "__dataclass_fields__", ())


def _look_at_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if not isinstance(key, str):
            message = f"returned a map with the key {key!r}; keys must be text"
            raise NodeError(message, "OUTPUT_NOT_JSON")
