"""All executions together: which live, are paused, ended lately; and whether Redis was emptied."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from rune.backends.redis.client import Client
from rune.backends.redis.keys import ENDED, ENDINGS, EPOCH, LIVE, PAUSED, of
from rune.backends.redis.scripts import load
from rune.core.errors import StateLost

__all__ = ["Registry", "state_lost"]

_log = logging.getLogger("rune.redis")
_LATELY = 10_000
"""Endings that are still news."""
_LISTED = 3600.0
"""Seconds after which an execution should have a row; it is listed a moment before."""
_KNOWN = 20_000
"""Executions that this process remembers to have met."""


def state_lost(execution: str) -> StateLost:
    """What befalls an execution whose State is no more."""
    return StateLost(f"Redis was emptied while {execution} was running")


class Registry:
    """Lists executions when they are first met, and notices when Redis is not the one we knew."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._met: dict[str, None] = {}
        self._lost: dict[str, None] = {}
        """Met before Redis was emptied, and not since."""
        self._connections = 0
        self._ended: dict[str, None] = {}
        self._endings = 0
        self.epoch = ""
        """The name of what Redis holds: another one means that all was lost in between."""

    # --- the epoch -----------------------------------------------------------------------------------------

    async def check(self, *executions: str) -> bool:
        """List executions, and see whether Redis still is the one we knew."""
        connections = self._client.connections
        epoch = await self._client.script(
            load("enlist"), (EPOCH, LIVE), repr(self._clock()), secrets.token_hex(8), *executions
        )
        known, self.epoch = self.epoch, epoch.decode()
        self._connections = connections if known else self._client.connections
        if known in ("", self.epoch):
            return True
        _log.error(
            "Redis was emptied (epoch %s, before %s): running executions are lost and fail when met, "
            "their waits and time-outs are gone",
            self.epoch,
            known,
        )
        self._lost, self._met = self._met, {}
        self._ended.clear()
        self._endings = 0
        return False

    async def meet(self, execution: str) -> str:
        """List an execution when it is first met; "new" if Redis may not know it yet.

        One that is lost is told so once: afterwards it can be ended.
        """
        # After an interruption, Redis may have come back empty.
        same = self._connections == self._client.connections or await self.check()
        if execution in self._met:
            return "known"
        if execution in self._lost or not same or not await self.check(execution):
            self._lost.pop(execution, None)
            raise state_lost(execution)
        self._met[execution] = None
        if len(self._met) > _KNOWN:
            del self._met[next(iter(self._met))]
        return "new"

    async def miss(self, execution: str) -> str:
        """Redis does not know an execution that it should: is it that its tombstone has gone?"""
        self._met.pop(execution, None)
        return await self.meet(execution)

    # --- lists ---------------------------------------------------------------------------------------------

    async def late(self, execution: str) -> None:
        """We listed an execution that is buried; whoever buried it may not have lived to delist it."""
        self._met.pop(execution, None)
        await asyncio.gather(
            self._client.call(LIVE, "ZREM", LIVE, execution),
            self._client.call(PAUSED, "SREM", PAUSED, execution),
        )

    async def ended(self, execution: str) -> None:
        """Note that an execution is buried."""
        self._met.pop(execution, None)
        await self._client.script(load("delist"), (LIVE, PAUSED, ENDED, ENDINGS), execution, _LATELY)

    async def note_pause(self, execution: str) -> None:
        """Have the list of paused executions say what is true of one, whoever else changes that meanwhile."""
        noted = None
        while noted is not (paused := await self._is_paused(execution)):
            await self._client.call(PAUSED, "SADD" if paused else "SREM", PAUSED, execution)
            noted = paused

    async def _is_paused(self, execution: str) -> bool:
        return bool(await self._client.call(of(execution), "HEXISTS", of(execution), "paused"))

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        """See `State.news`."""
        await self.check()
        fresh, paused = await asyncio.gather(
            self._client.call(ENDED, "ZRANGEBYSCORE", ENDED, f"({self._endings}", "+inf", "WITHSCORES"),
            self._client.call(PAUSED, "SMEMBERS", PAUSED),
        )
        for execution, number in zip(fresh[::2], fresh[1::2], strict=True):
            self._ended[execution.decode()] = None
            self._endings = int(float(number))
        while len(self._ended) > _LATELY:
            del self._ended[next(iter(self._ended))]
        return frozenset(self._ended), frozenset(execution.decode() for execution in paused)

    async def live(self) -> list[str]:
        """See `State.live`."""
        flat = await self._client.call(LIVE, "ZRANGE", LIVE, 0, -1, "WITHSCORES")
        listed = [(name.decode(), float(at)) for name, at in zip(flat[::2], flat[1::2], strict=True)]
        rows = await asyncio.gather(
            *(self._client.call(of(e), "HMGET", of(e), "since", "buried", "burying") for e, _ in listed)
        )
        live = []
        for (execution, at), (since, buried, burying) in zip(listed, rows, strict=True):
            if buried is not None:
                # Whoever buried it did not live to say so.
                await self.ended(execution)
            elif since is not None or burying is not None:
                live.append(execution)
            elif at < self._clock() - _LISTED:
                # Whoever listed it did nothing with it.
                await self.late(execution)
        return live
