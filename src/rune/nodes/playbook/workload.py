"""The start of a playbook: its workload, defaults and request merged, which nothing changes afterwards."""

from __future__ import annotations

from typing import Any, ClassVar

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome
from rune.core.playbook.memory import merged

__all__ = ["Start", "Workload"]


class Start(NodeType, kw_only=True):
    """Where a playbook begins."""

    name: ClassVar = "playbook.start"
    pure: ClassVar = True
    effects: ClassVar = False
    trigger: ClassVar = True

    async def run(self, context: StepContext) -> Outcome:
        return Done(context.value("$trigger"))


class Workload(NodeType, kw_only=True):
    """Merge what the execution was started with into the playbook's defaults."""

    name: ClassVar = "playbook.workload"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    reads: ClassVar = ("$trigger",)

    defaults: Any = None

    async def run(self, context: StepContext) -> Outcome:
        request = context.value("$trigger")
        if request is not None and not isinstance(request, dict):
            raise NodeError(
                f"a playbook is started with an object to merge into its workload, not {kind_of(request)}",
                "PLAYBOOK_REQUEST",
            )
        workload = merged(self.defaults or {}, request or {})
        return Done({"$json": {"ctx": {}, "args": {}}, "workload": workload}, working=True)
