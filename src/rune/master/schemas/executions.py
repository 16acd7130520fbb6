"""Executions, and what is known of them: steps, splits, items, events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rune.master.schemas import (
    EXAMPLE,
    Body,
    ExecutionStatus,
    Format,
    Id,
    Index,
    ItemState,
    Labels,
    LongText,
    Moment,
    SourceText,
    StepStatus,
    TriggerKind,
    VersionNumber,
)

__all__ = [
    "Cancel",
    "Child",
    "ErrorObject",
    "Event",
    "Execution",
    "ExecutionSummary",
    "Failure",
    "Fork",
    "Hold",
    "Item",
    "ItemDetail",
    "NodeCounts",
    "Position",
    "Redrive",
    "RedriveSplit",
    "Result",
    "Split",
    "SplitDetail",
    "Start",
    "Step",
    "StepDetail",
    "Why",
]


class Start(Body):
    """What to start: a stored workflow, or a definition sent along."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"definition": EXAMPLE, "input": {"name": "Ada"}, "wait": 5}]},
    )

    workflow_id: Id | None = None
    version: VersionNumber | None = Field(
        None, description="Instead of the published version, or the latest where none is published."
    )
    definition: dict[str, Any] | None = None
    source: SourceText | None = None
    format: Format | None = None
    input: Any = Field(None, description="What the execution starts with: `$trigger`.")
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    labels: Labels = Field(default_factory=dict)
    wait: Annotated[float, Field(ge=0, le=300)] = Field(
        0, description="Seconds to wait for the end; the answer then has the result."
    )

    @model_validator(mode="after")
    def _one_of_three(self) -> Start:
        if sum(given is not None for given in (self.workflow_id, self.definition, self.source)) != 1:
            raise ValueError("give one of `workflow_id`, `definition` and `source`")
        if self.version is not None and self.workflow_id is None:
            raise ValueError("`version` belongs to `workflow_id`")
        return self


class Cancel(Body):
    """Why an execution is to end."""

    reason: LongText = "cancelled"


class RedriveSplit(Body):
    """The failed items of a split."""

    barrier: Id
    items: Annotated[list[Index], Field(max_length=100_000)] | None = Field(
        None, description="Only these; all that failed, if not given."
    )


class Redrive(Body):
    """What to run again; without a node or a split, everything that failed."""

    node: Id | None = None
    split: RedriveSplit | None = None
    input: Any = Field(None, description="Another input for the execution.")
    items: dict[Index, Any] | None = Field(None, description="Other values for items of the split.")


class Fork(Body):
    """Where to begin again, with everything before it as it was."""

    node: Id
    input: Any = None
    version: VersionNumber | None = Field(None, description="Another version of the workflow.")


class ErrorObject(BaseModel):
    """Why something failed."""

    message: str
    code: str
    details: dict[str, Any] | None = None
    node: str | None = None


class Child(BaseModel):
    """An execution that was made from another."""

    id: str
    trigger: TriggerKind


class NodeCounts(BaseModel):
    """How many steps of a node are where."""

    model_config = ConfigDict(extra="allow")

    running: int
    waiting: int
    success: int
    failed: int
    stopped: int = Field(description="Still running or waiting when the execution ended.")
    last_at: Moment | None
    resume_at: Moment | None = Field(description="When the last of those that wait for a time goes on.")


class Split(BaseModel):
    """How far the items of a split have come."""

    barrier: str
    node: str
    scope: str | None = Field(description="The barrier of the item around it.")
    scope_item: int | None
    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    skipped: int
    closed: bool
    seq: int


class ExecutionSummary(BaseModel):
    """An execution in a list."""

    id: str
    workflow_id: str | None
    workflow_version: int | None
    name: str
    status: ExecutionStatus
    trigger: TriggerKind
    priority: int
    labels: dict[str, str]
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    duration_ms: int | None
    error: ErrorObject | None
    reason: str | None
    parent: str | None
    created_by: str | None
    seq: int


class Execution(ExecutionSummary):
    """An execution: where it stands, node by node and split by split."""

    input: Any
    children: list[Child]
    nodes: dict[str, NodeCounts]
    splits: list[Split]
    result: Any = Field(None, description="What it ended with, when it was waited for.")


class Result(BaseModel):
    """What an execution ended with."""

    id: str
    status: ExecutionStatus
    ended_at: Moment
    error: ErrorObject | None
    reason: str | None
    result: dict[str, Any] = Field(description="The final context: what each node left, by name.")


class Event(BaseModel):
    """One thing that happened in an execution."""

    seq: int
    at: Moment
    kind: str = Field(
        description="A step's status; without a node the execution's. Of playbooks such as `loop.shard.done`."
    )
    node: str | None
    step: str | None
    barrier: str | None
    item: int | None
    attempt: int
    duration_ms: int
    error: ErrorObject | None
    details: dict[str, Any] | None


class LogLine(BaseModel):
    """One thing that happened, in words."""

    seq: int
    at: Moment
    level: Literal["debug", "info", "warning", "error"]
    node: str | None
    step: str | None
    item: int | None
    message: str


class Frame(BaseModel):
    """One item that a step belongs to."""

    split: str = Field(description="The split's node.")
    barrier: str
    index: int
    total: int | None
    label: str
    key: str


class Attempt(BaseModel):
    """A try of a step that failed, and was followed by another."""

    attempt: int
    at: Moment
    duration_ms: int
    error: ErrorObject | None
    retry_at: Moment | None


class Step(BaseModel):
    """One branch at one node."""

    step: str
    node: str
    status: StepStatus
    attempt: int
    lineage: list[Frame] = Field(description="The items it belongs to, from the outermost in.")
    started_at: Moment
    ended_at: Moment | None
    duration_ms: int | None
    port: str | None = Field(description="Where it left the node; null follows no edge.")
    error: ErrorObject | None
    details: dict[str, Any] | None
    output_size: int | None = Field(description="Bytes of its output.")
    seq: int


class StepDetail(Step):
    """One step with what went in and what came out."""

    attempts: list[Attempt] = Field(description="The tries before the last one.")
    input: Any = Field(description="What the node before gave, or the payload it left.")
    item: Any = Field(description="The item it was for, in a split.")
    parameters: dict[str, Any] | None = Field(description="With every template resolved again.")
    exact: bool = Field(description="Whether the parameters are surely what they were.")
    notes: list[str] = Field(description="What could not be worked out, and why.")
    output: Any


class Failure(BaseModel):
    """Items that failed in the same way."""

    node: str
    code: str
    count: int
    example: int = Field(description="The first of these items.")
    error: ErrorObject | None


class SplitDetail(Split):
    """A split with what failed in it."""

    failures: list[Failure]


class Item(BaseModel):
    """One item of a split."""

    index: int
    state: ItemState
    label: str
    key: str
    error_code: str | None
    error_node: str | None
    seq: int


class ItemDetail(Item):
    """One item with its steps."""

    steps: list[Step]


class Hold(BaseModel):
    """One thing that an execution waits for."""

    kind: Literal["lease", "timer", "arrival", "barrier", "message", "paused", "lost"]
    node: str | None
    step: str | None
    scope: str = Field(description="The item it is in, as `barrier.item`; empty outside any split.")
    until: Moment | None
    detail: str


class Position(BaseModel):
    """Where a branch was seen last."""

    step: str
    node: str
    status: StepStatus
    since: Moment


class Why(BaseModel):
    """What keeps an execution from ending."""

    status: ExecutionStatus
    holds: list[Hold]
    positions: list[Position]
