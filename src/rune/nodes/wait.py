"""The wait node: rest for a time, until a time, or until somebody calls."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from rune.core.errors import NodeError
from rune.core.node import NodeType, StepContext
from rune.core.outcome import Outcome, Sleep
from rune.nodes._time import SECONDS, iso_at, parse_time

__all__ = ["Wait"]

_LATEST = 253_402_300_799.0
"""The last second of the year 9999, beyond which times cannot be written."""


class Wait(NodeType, kw_only=True):
    """Rest for a time, until a time, or until a call from outside; a resting branch costs nothing."""

    name: ClassVar = "wait"
    effects: ClassVar = False
    trusted: ClassVar = True

    resume: Annotated[
        Literal["time_interval", "until", "webhook"], Meta(description="What ends the wait.")
    ] = "time_interval"
    amount: Annotated[float, Meta(description="How many units to wait.", ge=0)] = 1
    unit: Annotated[
        Literal["seconds", "second", "minutes", "minute", "hours", "hour", "days", "day", "weeks", "week"],
        Meta(description="Unit of the amount."),
    ] = "seconds"
    until: Annotated[Any, Meta(description="Time to wait for, as ISO 8601; UTC where it names no zone.")] = (
        None
    )

    def __post_init__(self) -> None:
        if self.resume == "until" and self.until in (None, ""):
            raise ValueError("`resume: until` needs the time, in `until`")

    async def run(self, context: StepContext) -> Outcome:
        if self.resume == "webhook":
            return Sleep(None, {"resume_at": None, "timer_id": context.step})
        until = self._until(context.now())
        return Sleep(until, {"resume_at": iso_at(until), "timer_id": context.step})

    def _until(self, now: float) -> float:
        if self.resume == "until":
            return parse_time(self.until).timestamp()
        until = now + self.amount * SECONDS[f"{self.unit.removesuffix('s')}s"]
        if not math.isfinite(until) or until > _LATEST:
            raise NodeError(
                f"a wait of {self.amount:g} {self.unit} would end after the year 9999; wait for less",
                "WAIT_RANGE",
            )
        return until
