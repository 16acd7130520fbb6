"""The trigger nodes: what starts an execution. Their payload is `$trigger`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from rune.core.node import NodeType, StepContext
from rune.core.outcome import Done, Outcome

__all__ = ["ManualTrigger", "ScheduledTrigger", "WebhookTrigger"]

_MACROS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})


class ManualTrigger(NodeType, kw_only=True):
    """Start by hand, with a payload."""

    name: ClassVar = "ManualTrigger"
    pure: ClassVar = True
    effects: ClassVar = False
    trusted: ClassVar = True
    trigger: ClassVar = True
    reads: ClassVar = ("$trigger",)

    async def run(self, context: StepContext) -> Outcome:
        from rune.core.expressions import compile_expression

        return Done(context.evaluate(compile_expression("$trigger | default({})")))


class WebhookTrigger(ManualTrigger, kw_only=True):
    """Start when an HTTP request comes in; the request is the payload."""

    name: ClassVar = "webhook"


class ScheduledTrigger(ManualTrigger, kw_only=True):
    """Start at times that a cron line names, or at a regular interval."""

    name: ClassVar = "ScheduledTrigger"

    cron: Annotated[str | None, Meta(description="When to start, in the five fields of cron.")] = None
    amount: Annotated[float | None, Meta(description="Interval between starts.", gt=0)] = None
    unit: Annotated[
        Literal["seconds", "second", "minutes", "minute", "hours", "hour", "days", "day", "weeks", "week"],
        Meta(description="Unit of the interval."),
    ] = "seconds"

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.amount is None):
            raise ValueError("a schedule is either `cron`, or `amount` with `unit`")
        if (
            self.cron is not None
            and self.cron.strip() not in _MACROS
            and len(self.cron.split()) not in (5, 6)
        ):
            raise ValueError(f"{self.cron!r} is not a cron line: it has five fields, such as `0 9 * * 1-5`")
