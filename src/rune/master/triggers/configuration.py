"""How a webhook or a schedule is set up."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rune.core.errors import NodeError
from rune.master.triggers.authentication import Authentication, HeaderName, NoAuth
from rune.master.triggers.missing import Missed
from rune.master.triggers.timetable import Cron, Interval, Timetable, TimetableError
from rune.nodes._time import SECONDS, zone

__all__ = ["ScheduleConfig", "WebhookConfig", "configuration"]

_ORIGIN = re.compile(r"\*|https?://[a-zA-Z0-9.\-\[\]:]+")
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
Unit = Literal["seconds", "second", "minutes", "minute", "hours", "hour", "days", "day", "weeks", "week"]


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WebhookConfig(_Config):
    """A URL that starts an execution when it is called."""

    methods: Annotated[list[Method], Field(max_length=7)] = Field([], description="Empty takes any method.")
    auth: Authentication = NoAuth()
    respond: Literal["at_once", "wait"] = Field(
        "at_once", description="Answer when the execution has been stored, or when it has ended."
    )
    timeout: Annotated[float, Field(gt=0, le=300)] = Field(30, description="Seconds to wait for its end.")
    on_timeout: Literal[202, 504] = Field(202, description="The answer's status when that was too short.")
    response_node: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,200}$")] | None = Field(
        None, description="Whose output is the answer; the whole result, if none is named."
    )
    status: Annotated[int, Field(ge=200, le=299)] | None = Field(
        None, description="The answer's status; 202 at once, 200 after the end."
    )
    cors: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=50)] = Field(
        [], description="Origins whose pages may call it; `*` is any."
    )
    max_body: Annotated[int, Field(ge=0, le=16 * 1024 * 1024)] = Field(
        1024 * 1024, description="Bytes a body may have."
    )
    dedupe_header: HeaderName | None = Field(
        None, description="A header whose value names the call: another one with the same starts nothing."
    )

    @model_validator(mode="after")
    def _known_origins(self) -> WebhookConfig:
        for origin in self.cors:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is not an origin such as `https://example.org`, nor `*`")
        return self


class ScheduleConfig(_Config):
    """Times at which executions start by themselves."""

    cron: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="Five fields of cron, or six with the seconds first, or `@daily` and the like."
    )
    timezone: Annotated[str, Field(max_length=60)] = "UTC"
    amount: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="The interval, instead of `cron`."
    )
    unit: Unit = "seconds"
    start: datetime | None = Field(
        None, description="What the interval counts from; else the trigger's making."
    )
    missed: Missed = Field("skip", description="What to do about times at which no master was there.")
    max_missed: Annotated[int, Field(ge=1, le=1000)] = Field(
        100, description="At most so many for `run_all`."
    )
    input: Any = Field(None, description="Passed on as `$trigger.input`.")

    @model_validator(mode="after")
    def _can_be_kept(self) -> ScheduleConfig:
        try:
            self.timetable(0.0)
        except NodeError as error:
            raise ValueError(error.message) from None
        return self

    def timetable(self, made_at: float) -> Timetable:
        """When it is due, for a trigger that was made then."""
        if (self.cron is None) == (self.amount is None):
            raise TimetableError("a schedule is either `cron`, or `amount` with `unit`")
        if self.cron is not None:
            return Cron(self.cron, zone(self.timezone))
        assert self.amount is not None
        start = self.start and (self.start if self.start.tzinfo else self.start.replace(tzinfo=UTC))
        anchor = start.timestamp() if start else made_at
        return Interval(self.amount * SECONDS[f"{self.unit.removesuffix('s')}s"], anchor)


def configuration(kind: str, config: dict[str, Any]) -> WebhookConfig | ScheduleConfig:
    """A configuration as it was stored."""
    return (WebhookConfig if kind == "webhook" else ScheduleConfig).model_validate(config)
