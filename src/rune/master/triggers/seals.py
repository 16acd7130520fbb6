"""What a webhook keeps to itself: its token, which can be shown again, and its secret, which cannot."""

from __future__ import annotations

import logging
import os

import msgspec
from msgspec import Struct

from rune.history.triggers import Trigger, Triggers
from rune.history.vault import Vault, WrongKey

__all__ = ["Kept", "NoKey", "Seals"]

_log = logging.getLogger("rune.master")

_OPEN, _SEALED = b"0", b"1"


class NoKey(Exception):
    """There is a secret to keep, and no key to keep it under."""


class Kept(Struct, frozen=True, omit_defaults=True):
    """A webhook's token and its secret."""

    token: str
    secret: str = ""


class Seals:
    """Seals what triggers keep; without a vault there are no secrets, and tokens lie open in the database."""

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault

    def close(self, kept: Kept, trigger: str) -> bytes:
        """As it is stored; NoKey if it cannot be."""
        if self._vault is None and kept.secret:
            raise NoKey
        return self._seal(msgspec.json.encode(kept), f"trigger/{trigger}")

    def open(self, trigger: Trigger) -> Kept:
        """What was stored; WrongKey if that was under another key."""
        return msgspec.json.decode(self._unseal(trigger.sealed or b"", f"trigger/{trigger.id}"), type=Kept)

    async def signing_key(self, triggers: Triggers, name: str) -> bytes:
        """A key that every master of this history has."""
        purpose = f"signing/{name}"
        return self._unseal(await triggers.key(name, self._seal(os.urandom(32), purpose)), purpose)

    async def renew(self, triggers: Triggers) -> None:
        """Seal under the first key what is still under another."""
        if self._vault is None:
            return
        for id, sealed in await triggers.sealed():
            purpose = id if id.startswith("signing/") else f"trigger/{id}"
            if sealed[:1] == _SEALED and self._vault.is_current(sealed[1:]):
                continue
            try:
                plain = self._unseal(sealed, purpose)
            except WrongKey as error:
                _log.error("what %s keeps cannot be read: %s", purpose, error)
                continue
            await triggers.reseal(id, sealed, self._seal(plain, purpose))

    def _seal(self, plain: bytes, purpose: str) -> bytes:
        return _OPEN + plain if self._vault is None else _SEALED + self._vault.seal(plain, purpose)

    def _unseal(self, sealed: bytes, purpose: str) -> bytes:
        if sealed[:1] == _OPEN:
            return sealed[1:]
        if self._vault is None:
            raise NoKey
        return self._vault.open(sealed[1:], purpose)
