"""Passwords, hashed with argon2id, off the event loop and a few at a time."""

from __future__ import annotations

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

__all__ = ["LONGEST", "SHORTEST", "Passwords"]

SHORTEST, LONGEST = 12, 1024
_AT_ONCE = 2
"""Each takes 64 MiB and a core."""


class Passwords:
    """Hashes and verifies; a name that nobody has takes as long as one that somebody has."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._nobody: str | None = None

    async def hash(self, password: str) -> str:
        """What to keep of a password."""
        async with self._slots:
            return await asyncio.to_thread(self._hasher.hash, password)

    async def verify(self, kept: str | None, password: str) -> bool:
        """Whether this is the password; never so where nothing is kept."""
        if kept is None:
            self._nobody = self._nobody or await self.hash("nobody's")
        async with self._slots:
            right = await asyncio.to_thread(self._matches, kept or self._nobody or "", password)
        return right and kept is not None

    def _matches(self, kept: str, password: str) -> bool:
        try:
            return self._hasher.verify(kept, password)
        except (VerificationError, InvalidHashError):
            return False

    def is_outdated(self, kept: str) -> bool:
        """Whether it was hashed by other parameters than today's."""
        return self._hasher.check_needs_rehash(kept)
