"""The clock of schedules: it starts what is due, each due time once among all masters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec
from msgspec import Raw
from pydantic import ValidationError

from rune.core.errors import InfrastructureError
from rune.history.triggers import Firing, Trigger, Triggers
from rune.master.answering import iso
from rune.master.triggers.configuration import ScheduleConfig
from rune.master.triggers.missing import catch_up
from rune.master.triggers.starting import Refused, TriggerStarter

__all__ = ["Clock"]

_log = logging.getLogger("rune.master")

_LOOK = 5.0
"""Seconds after which the clock looks unasked: times may be set, and other masters change triggers."""
_HOLD = 30.0
"""Seconds a master has to start what it has taken on, before another does."""


class Clock:
    """Fires schedules."""

    def __init__(
        self, triggers: Triggers, starter: TriggerStarter, now: Callable[[], float] = time.time
    ) -> None:
        self._triggers = triggers
        self._starter = starter
        self._now = now
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """A schedule has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Fire what is due, for ever."""
        while True:
            self._changed.clear()
            await self.fire()
            due = await self._triggers.next_due()
            rest = _LOOK if due is None else min(max(0.0, due - self._now()), _LOOK)
            try:
                async with asyncio.timeout(rest):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def fire(self) -> None:
        """Start what is due now, and what others have taken on and not started."""
        now = self._now()
        for trigger in await self._triggers.due(now):
            for firing in await self._claim(trigger, now):
                await self._start(trigger, firing)
        for firing in await self._triggers.abandoned(now, now + _HOLD):
            trigger_of = await self._triggers.get(firing.trigger_id)
            if trigger_of is not None:
                await self._start(trigger_of, firing)

    async def _claim(self, trigger: Trigger, now: float) -> list[Firing]:
        assert trigger.next_due is not None
        try:
            config = ScheduleConfig.model_validate(trigger.config)
        except ValidationError as error:
            # It made sense once: a time zone may be gone.
            _log.error("the schedule %s cannot be kept any more: %s", trigger.id, error)
            return await self._triggers.claim(trigger, [], None, now, now)
        timetable = config.timetable(trigger.created_at)
        catch = catch_up(timetable, trigger.next_due, now, config.missed, config.max_missed)
        return await self._triggers.claim(trigger, catch.firings, catch.next, now, now + _HOLD)

    async def _start(self, trigger: Trigger, firing: Firing) -> None:
        payload = {
            "trigger_id": trigger.id,
            "due": iso(firing.due),
            "input": trigger.config.get("input"),
        }
        try:
            await self._starter.start(trigger, firing.execution_id, Raw(msgspec.json.encode(payload)))
        except Refused as refused:
            _log.warning("the schedule %s, due at %s: %s", trigger.id, iso(firing.due), refused)
            await self._triggers.settle(firing, self._now(), str(refused))
        except InfrastructureError as error:
            # Whoever finds its claim run out tries again.
            _log.warning("the schedule %s, due at %s: %s; trying again", trigger.id, iso(firing.due), error)
        else:
            await self._triggers.settle(firing, self._now())
