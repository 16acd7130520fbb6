"""How accounts begin: whether there are any, and how the first admin gets in."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from rune.history.audit import Entry
from rune.master.security.bearers import digest, new_secret
from rune.master.security.gate import Gate
from rune.master.security.origins import is_loopback
from rune.master.security.passwords import LONGEST, SHORTEST
from rune.settings import Settings, SettingsError

__all__ = ["first_admin", "require_accounts"]

_EXPECTED = 24 * 3600.0
"""Seconds for which a set-up link is good."""


def require_accounts(settings: Settings, *, dev: bool) -> bool:
    """Whether people have to log in; SettingsError where they must and the settings say they need not."""
    public = urlsplit(settings.public_url or "").hostname or "localhost"
    alone = is_loopback(settings.host) and is_loopback(public)
    if settings.accounts is None:
        return not (dev and alone)
    if not settings.accounts and not alone:
        raise SettingsError(
            f"whoever reaches {settings.public_url or settings.host} could do everything: accounts are "
            "needed for all but a loopback address; leave out RUNE_ACCOUNTS=false, or listen at 127.0.0.1"
        )
    return settings.accounts


async def first_admin(gate: Gate, settings: Settings, address: str) -> str | None:
    """See to the first account: made with RUNE_ADMIN_PASSWORD, or else the link at which to make it.

    None if there is an account, or none is needed. The link is good once, and for a day.
    """
    if not gate.required or await gate.accounts.any():
        return None
    if settings.admin_password is not None:
        if not SHORTEST <= len(settings.admin_password) <= LONGEST:
            raise SettingsError(f"RUNE_ADMIN_PASSWORD needs at least {SHORTEST} characters")
        password = await gate.passwords.hash(settings.admin_password)
        entry = Entry.new(time.time(), "user.create", object="admin", details={"first": True})
        await gate.accounts.create_first("admin", password, entry)
        return None
    secret = new_secret()
    await gate.accounts.expect(digest(secret), _EXPECTED)
    return f"{(settings.public_url or address).rstrip('/')}/setup?token={secret}"
