"""Who takes part: each process says so itself, again and again, and is forgotten when it stops saying it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rune.backends.redis.client import Client
from rune.backends.redis.keys import MEMBERS
from rune.core.holding import Member

__all__ = ["PATIENCE", "Members"]

PATIENCE = 15.0
"""Seconds after which somebody who says nothing is taken for gone."""

_decode = msgspec.json.Decoder(Member).decode


class Members:
    """The list of processes, by their ids."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock

    async def announce(self, member: Member) -> None:
        """Say that somebody is there, and what it does."""
        seen = msgspec.structs.replace(member, seen=self._clock())
        await self._client.call(MEMBERS, "HSET", MEMBERS, member.id, msgspec.json.encode(seen))

    async def leave(self, id: str) -> None:
        """Say that somebody has left."""
        await self._client.call(MEMBERS, "HDEL", MEMBERS, id)

    async def all(self) -> list[Member]:
        """Who is there; those that were not heard of for a while are forgotten."""
        members = [_decode(text) for text in await self._client.call(MEMBERS, "HVALS", MEMBERS)]
        early = self._clock() - PATIENCE
        for member in members:
            if member.seen < early:
                await self.leave(member.id)
        return sorted((m for m in members if m.seen >= early), key=lambda m: (m.role, m.since, m.id))
