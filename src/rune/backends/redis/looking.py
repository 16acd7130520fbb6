"""What can be seen of executions from outside, without changing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rune.backends.redis.client import Client
from rune.backends.redis.keys import CLAIMED, DUE, of
from rune.backends.redis.scripts import load
from rune.core.holding import BarrierOpen, Holding, LeaseHeld, MergeOpen, Standing
from rune.core.operations import Timer

__all__ = ["Looking"]

_MISSING = 5
"""Items that are named of those which have not ended."""
_LOOKED = 50_000
_PAGE = 5_000
"""Items among which they are looked for, and by one call: a look must not keep others waiting."""
_SCANNED = 500
"""Timers that are looked at by one call."""


class Looking:
    """Reads the rows of executions that have not ended."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        """See `State.standings`."""
        rows = await asyncio.gather(
            *(self._client.call(of(e), "HMGET", of(e), "since", "buried", "burying") for e in executions)
        )
        known: dict[str, Standing] = {}
        for execution, (since, buried, burying) in zip(executions, rows, strict=True):
            if buried is not None or burying is not None:
                known[execution] = "ended"
            elif since is not None:
                known[execution] = "alive"
        return known

    async def holding(self, execution: str, limit: int) -> Holding | None:
        """See `State.holding`."""
        reply = await self._client.script(load("holding"), (of(execution),), repr(self._clock()), limit)
        if reply == 0:
            return None
        live, touched, paused, ended, parked, leases, sleepers, others, barriers, merges, counts = reply
        timers = _timers(execution, sleepers, True) + _timers(execution, others, False)
        timers.sort(key=lambda timer: (timer.due is None, timer.due))
        missing = await asyncio.gather(*(self._missing(execution, barrier) for barrier in barriers))
        return Holding(
            live=live,
            touched=float(touched),
            paused=bool(paused),
            ended=bool(ended),
            parked=parked,
            leases=tuple(LeaseHeld(s.decode(), scope.decode(), float(at)) for s, scope, at in leases),
            timers=tuple(timers[:limit]),
            barriers=tuple(_barrier(items, *row) for row, items in zip(barriers, missing, strict=True)),
            merges=tuple(_merge(*merge) for merge in merges),
            counts=dict(zip(("leases", "timers"), counts, strict=True)),
        )

    async def _missing(self, execution: str, barrier: Any) -> tuple[int, ...]:
        """The first items without a slot, if they are among the first."""
        key, published = of(execution, f"i:{barrier[0].decode()}"), barrier[6]
        found: list[int] = []
        for at in range(0, min(published, _LOOKED), _PAGE):
            stop, wanted = min(published, at + _PAGE), _MISSING - len(found)
            found += await self._client.script(load("unfilled"), (key,), at, stop, wanted)
            if len(found) == _MISSING:
                break
        return tuple(found)

    async def timers(self, limit: int) -> list[Timer]:
        """See `State.timers`."""
        listed = await asyncio.gather(
            *(self._client.call(key, "ZRANGE", key, 0, limit - 1, "WITHSCORES") for key in (DUE, CLAIMED))
        )
        soon = sorted((float(at), name.decode()) for flat in listed for name, at in _pairs(flat))
        found = await asyncio.gather(*(self._timer(at, *name.split("/", 1)) for at, name in soon[:limit]))
        return [timer for timer in found if timer is not None]

    async def undue(self, execution: str, cursor: str) -> tuple[list[Timer], str]:
        """See `State.undue`: those in which branches sleep first, then the others."""
        kind, _, at = cursor.partition(":")
        kind = kind or "sleepers"
        key = of(execution, kind)
        following, flat = await self._client.call(key, "HSCAN", key, at or "0", "COUNT", _SCANNED)
        timers = [t for t in _timers(execution, flat, kind == "sleepers") if t.due is None]
        if int(following):
            return timers, f"{kind}:{int(following)}"
        return timers, "timers:0" if kind == "sleepers" else ""

    async def _timer(self, at: float, execution: str, id: str) -> Timer | None:
        for key, sleeping in (("sleepers", True), ("timers", False)):
            text = await self._client.call(of(execution, key), "HGET", of(execution, key), id)
            if text is not None:
                return Timer(id, at, text.split(b" ", 2)[2], sleeping, execution)
        return None


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _timers(execution: str, flat: Sequence[bytes], sleeping: bool) -> list[Timer]:
    found = []
    for id, text in _pairs(flat):
        due, claimed, task = text.split(b" ", 2)
        at = due if claimed == b"-" else claimed
        found.append(Timer(id.decode(), None if at == b"-" else float(at), task, sleeping, execution))
    return found


def _barrier(
    missing: tuple[int, ...],
    id: bytes,
    scope: bytes,
    total: int | None,
    done: int,
    failed: int,
    skipped: int,
    published: int,
    release: bytes,
) -> BarrierOpen:
    numbers = total, done, failed, skipped, published
    return BarrierOpen(id.decode(), scope.decode(), *numbers, release, missing)


def _merge(
    id: bytes, scope: bytes, expected: int, accounted: int, live: int, need: bytes, members: Sequence[bytes]
) -> MergeOpen:
    names = tuple(sorted(member.decode() for member in members))
    return MergeOpen(
        id.decode(), scope.decode(), expected, accounted, live, int(need) if need else None, names
    )
