"""A master with all it needs: on one file in this process, or beside RabbitMQ, Redis and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rune.core.registry import Registry
from rune.credentials import Credentials, Promised
from rune.embedded import Embedded
from rune.history import open_history
from rune.history.credentials import StoredCredentials, open_store
from rune.master.security.beginning import require_accounts
from rune.master.service import Master
from rune.master.watch import Patience
from rune.nodes import guarded_services
from rune.settings import Settings, SettingsError

__all__ = ["open_local", "open_remote"]

_ALONE = Patience(look=5.0, started=5.0)
"""How long to wait for a start to be under way where nobody else starts anything."""


@asynccontextmanager
async def open_local(
    settings: Settings, registry: Registry, database: str | None, history: str | None = None
) -> AsyncIterator[Master]:
    """A master with the engine in this process, on a SQLite file, or in memory beside another history."""
    from rune.master.local import Local

    accounts = require_accounts(settings, dev=True)
    # The engine may be asked for its credentials' names before their store is open.
    promised = Promised()
    credentials = Credentials(settings.credentials, settings.credentials_dir, promised)
    services = guarded_services(settings.http_allow)
    key_file = Path(f"{database}.key") if database else None
    async with Embedded.open(
        settings, registry, database, credentials=credentials, services=services, held=True
    ) as embedded:
        where = history or embedded.database
        assert where is not None, "an engine in memory has no file for the history"
        async with open_history(where) as kept:
            store = await open_store(kept.database, settings, key_file)
            promised.keep(StoredCredentials(store, fresh=0) if store else None)
            runtime = Local(embedded)
            embedded.taking.set()
            yield Master(
                settings,
                registry,
                kept,
                runtime,
                accounts=accounts,
                credentials=store,
                patience=_ALONE,
                engine=embedded,
            )


@asynccontextmanager
async def open_remote(settings: Settings, registry: Registry) -> AsyncIterator[Master]:
    """A master beside workers and schedulers that are elsewhere."""
    from rune.master.remote import Remote

    if settings.history_url is None:
        raise SettingsError(
            "say where the history is: --history postgresql://… or the path of a file, or RUNE_HISTORY_URL"
        )
    accounts = require_accounts(settings, dev=False)
    async with Remote.open(settings, registry) as runtime, open_history(settings.history_url) as history:
        store = await open_store(history.database, settings)
        yield Master(settings, registry, history, runtime, accounts=accounts, credentials=store)
