"""Conditions of a query, with their arguments numbered as they come."""

from __future__ import annotations

from typing import Any

__all__ = ["Conditions"]


class Conditions:
    """The WHERE of a query; each `?` in a condition stands for its next argument."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self._parts: list[str] = []

    def add(self, condition: str, *args: Any) -> None:
        """One more condition that has to hold."""
        for arg in args:
            condition = condition.replace("?", self.arg(arg), 1)
        self._parts.append(condition)

    def arg(self, value: Any) -> str:
        """The parameter that stands for a value."""
        self.args.append(value)
        return f"${len(self.args)}"

    def contains(self, text: str, *columns: str) -> None:
        """One of these columns has a text somewhere, however it is written."""
        escaped = text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        pattern = self.arg(f"%{escaped}%")
        self._parts.append(
            "(" + " OR ".join(f"LOWER({column}) LIKE {pattern} ESCAPE '\\'" for column in columns) + ")"
        )

    def one_of(self, column: str, values: list[Any]) -> None:
        """A column has one of these values."""
        self._parts.append(f"{column} IN ({', '.join(map(self.arg, values))})" if values else "FALSE")

    def __str__(self) -> str:
        return " AND ".join(self._parts) if self._parts else "TRUE"
