"""A scope of plain names, and the shortest way to a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rune.core.expressions import compile_expression, compile_template

DATA: dict[str, Any] = {
    "$fetch": {
        "status": 200,
        "body": {"items": [{"id": 7, "name": "Ada"}, {"id": 8, "name": "Bob"}], "next": None, "0": "zero"},
        "headers": {"content-type": "text/plain"},
    },
    "$item": {"price": 10, "name": "Ada", "text": "3"},
    "$index": 2,
    "$n": 5,
    "$empty": [],
    "$null": None,
    "workload": {"base": "http://x", "rows": [1, 2, 3]},
}


class Names:
    """A scope over a dictionary."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def lookup(self, name: str) -> Any:
        return self.values[name]

    def names(self) -> Iterable[str]:
        return self.values


def evaluate(source: str, data: dict[str, Any] | None = None, **flags: Any) -> Any:
    """The value of an expression over DATA or other data."""
    return compile_expression(source, **flags).evaluate(Names(DATA if data is None else data))


def resolve(value: Any, data: dict[str, Any] | None = None, **flags: Any) -> Any:
    """The value of a parameter tree over DATA or other data."""
    return compile_template(value, **flags).resolve(Names(DATA if data is None else data))


def same(value: Any, expected: Any) -> bool:
    """Whether two values are equal and of the same types: 1, 1.0 and True are not."""
    return repr(value) == repr(expected)
