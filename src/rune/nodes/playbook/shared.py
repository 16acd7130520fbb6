"""What the iterations of a loop write for all, by declared reducers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.errors import ErrorInfo
from rune.core.expressions import kind_of
from rune.core.node import StepContext
from rune.core.playbook.program import Reducer
from rune.core.playbook.reducing import fold, nothing
from rune.nodes._results import Results, kept

__all__ = ["Shared"]


class Shared:
    """Shared values, folded one iteration after another; the first that cannot be is the error."""

    def __init__(self, context: StepContext, reducers: Mapping[str, Reducer]) -> None:
        self.error: ErrorInfo | None = None
        self._context = context
        self._reducers = reducers
        self._folds = {name: nothing(op) for name, op in reducers.items() if op != "append"}
        self._lists = {name: Results(context) for name, op in reducers.items() if op == "append"}

    async def add(self, values: Mapping[str, Any]) -> None:
        """Take what one iteration wrote."""
        for name, value in values.items():
            if name in self._lists:
                await self._lists[name].add(msgspec.json.encode(value))
            elif (wrong := self._fold(name, value)) and self.error is None:
                self.error = ErrorInfo(wrong, "PLAYBOOK_SHARED", {"name": name})

    def _fold(self, name: str, value: Any) -> str:
        """Fold one value; why that is impossible."""
        if name not in self._folds:
            return f"nobody reduces the shared value '{name}'; declare it in `fanout.reducers`"
        op, before = self._reducers[name], self._folds[name]
        try:
            self._folds[name] = fold(op, before, value)
        except (TypeError, ValueError):
            return f"the shared value '{name}' is a {op}: it cannot take {kind_of(value)}"
        return ""

    async def whole(self) -> Raw:
        """All of them by name, as JSON, or what stands for it if it is large."""
        lists = {name: await results.whole() for name, results in self._lists.items()}
        folded = {**self._folds, **lists}
        return await kept(self._context, {name: folded[name] for name in self._reducers})
