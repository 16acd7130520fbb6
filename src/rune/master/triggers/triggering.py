"""All that starts executions by itself, held together."""

from __future__ import annotations

from rune.history import History
from rune.history.triggers import Triggers
from rune.history.vault import Vault
from rune.master.flows import Flows
from rune.master.runtime import Runtime
from rune.master.starting import Starter
from rune.master.triggers.firing import Clock
from rune.master.triggers.resuming import Links
from rune.master.triggers.seals import Seals
from rune.master.triggers.starting import TriggerStarter
from rune.settings import Settings

__all__ = ["Triggering"]


class Triggering:
    """The triggers, the clock that fires schedules, and the links that end waits."""

    def __init__(
        self,
        settings: Settings,
        history: History,
        runtime: Runtime,
        flows: Flows,
        starter: Starter,
        vault: Vault | None = None,
    ) -> None:
        self.address = (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/")
        """Where others reach the master, for the URLs they are given."""
        self.store = Triggers(history.database)
        self.seals = Seals(vault)
        self.starter = TriggerStarter(history, flows, starter)
        self.clock = Clock(self.store, self.starter)
        self.links = Links(history.database, self.store, self.seals, runtime, self)

    async def run(self) -> None:
        """Fire schedules, for ever."""
        await self.seals.renew(self.store)
        await self.clock.run()
