"""What triggers look like from outside."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from rune.master.schemas import Body, Id, Moment, Text, VersionNumber
from rune.master.triggers.configuration import ScheduleConfig, WebhookConfig

__all__ = [
    "Fired",
    "NewSchedule",
    "NewTrigger",
    "NewWebhook",
    "ScheduleChange",
    "ScheduleView",
    "Timetable",
    "TriggerChange",
    "TriggerId",
    "WaitingStep",
    "WebhookChange",
    "WebhookView",
]

TriggerId = Annotated[str, Path(pattern=r"^[a-zA-Z0-9_-]{1,200}$", description="A trigger's id.")]
Secret = Annotated[str, Field(min_length=8, max_length=1000, pattern=r"^[^\x00]*$")]


class NewWebhook(Body):
    """A URL that starts a workflow."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"kind": "webhook", "workflow_id": "hello", "config": {}}]},
    )

    kind: Literal["webhook"]
    workflow_id: Id
    name: Text = ""
    enabled: bool = True
    config: WebhookConfig = Field(default_factory=lambda: WebhookConfig.model_validate({}))
    secret: Secret | None = Field(
        None, description="What `config.auth` compares with; it is never shown again."
    )


class NewSchedule(Body):
    """Times at which a workflow starts."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"kind": "schedule", "workflow_id": "hello", "config": {"cron": "0 9 * * 1-5"}}]
        },
    )

    kind: Literal["schedule"]
    workflow_id: Id
    name: Text = ""
    enabled: bool = True
    config: ScheduleConfig


class WebhookChange(NewWebhook):
    """What becomes of a webhook; a secret that is not given stays."""

    version: VersionNumber = Field(description="The version that is being changed.")


class ScheduleChange(NewSchedule):
    """What becomes of a schedule."""

    version: VersionNumber = Field(description="The version that is being changed.")


NewTrigger = Annotated[NewWebhook | NewSchedule, Field(discriminator="kind")]
TriggerChange = Annotated[WebhookChange | ScheduleChange, Field(discriminator="kind")]


class _View(BaseModel):
    id: str
    workflow_id: str
    name: str
    enabled: bool
    version: int
    created_at: Moment
    updated_at: Moment
    created_by: str


class WebhookView(_View):
    """A webhook."""

    kind: Literal["webhook"]
    config: WebhookConfig
    has_secret: bool | None = Field(description="Null where this master does not have the key to tell.")
    url: str | None = Field(
        description="Where to call it; null for those who may not start executions, or without the key."
    )
    test_url: str | None = Field(description="The same for the latest version, published or not.")


class ScheduleView(_View):
    """A schedule."""

    kind: Literal["schedule"]
    config: ScheduleConfig
    explanation: str
    next: list[Moment] = Field(description="The next five times it is due; none while it is disabled.")


class Timetable(BaseModel):
    """When a schedule would be due."""

    explanation: str
    next: list[Moment]


class Fired(BaseModel):
    """One time at which a schedule was due."""

    due: Moment
    execution_id: str
    settled_at: Moment | None
    error: str | None = Field(description="Why nothing was started.")


class WaitingStep(BaseModel):
    """A step that waits to be called."""

    step: str
    node: str
    item: int | None
    since: Moment
    url: str = Field(description="A POST to it ends the wait, once; its body becomes the payload.")
