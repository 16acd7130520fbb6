"""Values of databases as JSON has them, and values of JSON as databases take them."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["from_json", "parsed", "to_json"]

_JSON = frozenset({"json", "jsonb"})
_TEXT = frozenset({"text", "varchar", "bpchar", "name"})
_TIMES: dict[str, Callable[[str], Any]] = {
    "timestamptz": lambda text: _zoned(datetime.datetime.fromisoformat(text)),
    "timestamp": lambda text: datetime.datetime.fromisoformat(text).replace(tzinfo=None),
    "date": lambda text: datetime.datetime.fromisoformat(text).date(),
    "time": datetime.time.fromisoformat,
    "timetz": datetime.time.fromisoformat,
}


def from_json(value: Any, type: str) -> Any:
    """A value as PostgreSQL takes it for a parameter of a type: times are texts in JSON."""
    if type in _JSON and value is not None and not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if type in _TEXT and isinstance(value, int | float):
        return msgspec.json.encode(value).decode()
    if type in _TIMES and isinstance(value, str):
        try:
            return _TIMES[type](value)
        except ValueError:
            return value
    return value


def _zoned(at: datetime.datetime) -> datetime.datetime:
    return at if at.tzinfo else at.replace(tzinfo=datetime.UTC)


def parsed(value: Any, type: str) -> Any:
    """A value of a column of a type: of JSON what it says, not its text."""
    return msgspec.json.decode(value) if type in _JSON and isinstance(value, str) else value


def to_json(value: Any) -> Any:
    """A value of a database as JSON has it."""
    match value:
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() and value.is_finite() else float(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case list() | tuple() | set():
            return [to_json(part) for part in value]
        case dict():
            return {str(key): to_json(part) for key, part in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
