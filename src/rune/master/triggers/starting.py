"""Starting the workflow of a trigger."""

from __future__ import annotations

from msgspec import Raw

from rune.history import History
from rune.history.executions import Execution, NewExecution
from rune.history.triggers import Trigger
from rune.master.flows import Flows
from rune.master.starting import Starter

__all__ = ["Refused", "TriggerStarter"]


class Refused(Exception):
    """There is nothing that a trigger could start."""


class TriggerStarter:
    """Starts the published version of a trigger's workflow, or for a test the latest."""

    def __init__(self, history: History, flows: Flows, starter: Starter) -> None:
        self._workflows = history.workflows
        self._flows = flows
        self._starter = starter

    async def start(self, trigger: Trigger, execution: str, input: Raw, *, test: bool = False) -> Execution:
        """Start an execution under this id; to repeat it changes nothing. Refused if there is no workflow."""
        workflow = await self._workflows.get(trigger.workflow_id)
        if workflow is None:
            raise Refused(f"there is no workflow {trigger.workflow_id!r} any more")
        number = workflow.version if test else workflow.published
        if number is None:
            raise Refused(f"no version of the workflow {workflow.id!r} is published")
        version = await self._workflows.version(workflow.id, number)
        if version is None:
            raise Refused(f"the workflow {workflow.id!r} has no version {number} any more")
        new = NewExecution(
            id=execution,
            definition=version.definition,
            name=workflow.name,
            workflow_id=workflow.id,
            workflow_version=number,
            trigger=trigger.kind,
            input=input,
            labels={"trigger": trigger.id} | ({"test": "true"} if test else {}),
            created_by=trigger.created_by or None,
        )
        return await self._starter.start(self._flows.flow(version.definition.encode(), version.hash), new)
