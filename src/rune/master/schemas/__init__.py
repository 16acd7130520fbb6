"""What requests and answers look like.

Bodies are read by these; answers are encoded without them, so that here they only describe the API.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

__all__ = [
    "EXAMPLE",
    "Body",
    "ExecutionId",
    "ExecutionStatus",
    "Format",
    "Id",
    "Index",
    "ItemState",
    "Label",
    "Labels",
    "LongText",
    "Moment",
    "Page",
    "SourceText",
    "StepStatus",
    "Text",
    "TextQuery",
    "TriggerKind",
    "VersionNumber",
    "WorkflowId",
]

T = TypeVar("T")

_NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, Field(max_length=200, pattern=_NO_NUL)]
LongText = Annotated[str, Field(max_length=10_000, pattern=_NO_NUL)]
SourceText = Annotated[str, Field(max_length=8_000_000, pattern=_NO_NUL)]
Id = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,200}$")]
VersionNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]
Index = Annotated[int, Field(ge=0, le=2**31 - 1)]
Label = Text
Labels = Annotated[dict[Label, Label], Field(max_length=32)]
Format = Literal["graph", "playbook"]
ExecutionStatus = Literal["pending", "running", "paused", "completed", "failed", "halted"]
TriggerKind = Literal["manual", "api", "webhook", "schedule", "redrive", "fork", "wire", "cli", "workflow"]
StepStatus = Literal["running", "waiting", "success", "failed", "stopped"]
ItemState = Literal["pending", "running", "succeeded", "failed", "skipped"]
Moment = Annotated[
    str, Field(description="ISO 8601, UTC, with milliseconds.", examples=["2026-03-01T12:00:00.000Z"])
]

_ID = r"^[a-zA-Z0-9_-]{1,200}$"
WorkflowId = Annotated[str, Path(pattern=_ID, description="A workflow's id.")]
ExecutionId = Annotated[str, Path(pattern=_ID, description="An execution's id.")]
TextQuery = Annotated[str | None, Query(max_length=200, pattern=_NO_NUL)]


class Body(BaseModel):
    """What a request brings: a field that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next: str | None = Field(description="The `after` of the page that follows; null on the last.")


EXAMPLE: JsonDict = {
    "workflow_id": "hello",
    "name": "Hello",
    "nodes": [{"id": "greet", "type": "log", "parameters": {"message": "Hello"}}],
    "edges": [],
}
"""A definition for the examples."""
