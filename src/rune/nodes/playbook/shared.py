"""What the iterations of a loop write for all, by declared reducers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from rune.core.errors import ErrorInfo, NodeError
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
                await self._lists[name].add(bytes(await kept(self._context, value)))
                continue
            try:
                self._folds[name] = fold(self._reducers, name, self._folds.get(name), value)
            except NodeError as error:
                self.error = self.error or ErrorInfo(error.message, error.code, error.details)

    async def whole(self) -> Raw:
        """All of them by name, as JSON, or what stands for it if it is large."""
        lists = {name: await results.whole() for name, results in self._lists.items()}
        folded = {**{name: await kept(self._context, value) for name, value in self._folds.items()}, **lists}
        return await kept(self._context, {name: folded[name] for name in self._reducers})
