"""The workflows of the definitions that Tasks come with or refer to, each compiled once."""

from __future__ import annotations

from collections.abc import Callable

from rune.core.errors import MessageError
from rune.core.ids import content_hash
from rune.core.messages import NULL, Task
from rune.core.workflow import Workflow
from rune.engine.values import Values

__all__ = ["Flows"]

_KEPT = 1000


class Flows:
    """Keeps those that were compiled last, by definition or by its hash."""

    def __init__(self, compile: Callable[[bytes], Workflow], values: Values) -> None:
        self._compile = compile
        self._values = values
        self._kept: dict[str | bytes, Workflow] = {}

    def known(self, task: Task) -> Workflow | None:
        """The workflow a Task belongs to, if it is at hand."""
        return self._kept.get(task.definition or bytes(task.workflow_definition))

    async def of(self, task: Task) -> Workflow:
        """The workflow a Task belongs to."""
        key: str | bytes = task.definition or bytes(task.workflow_definition)
        flow = self._kept.get(key)
        if flow is None:
            if key == bytes(NULL):
                raise MessageError("no workflow_definition")
            data = key if isinstance(key, bytes) else await self._values.fetch(task.execution_id, key)
            flow = self._compile(data)
            self.keep(key, flow)
        return flow

    def compiled(self, definition: bytes) -> Workflow:
        """The workflow of a definition."""
        hash = content_hash(definition)
        flow = self._kept.get(hash)
        if flow is None:
            flow = self._compile(definition)
            self.keep(hash, flow)
        return flow

    def keep(self, key: str | bytes, flow: Workflow) -> None:
        """Keep one that is about to be used."""
        self._kept[key] = flow
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
