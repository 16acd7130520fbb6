"""Timers: the truth in each execution's slot, and beside it an index of all of them by time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rune.backends.redis.client import Client, Trouble
from rune.backends.redis.encoding import pack
from rune.backends.redis.keys import CHANNEL, CLAIMED, DUE, of
from rune.backends.redis.scripts import load
from rune.core.operations import Timer

__all__ = ["Timers"]

_log = logging.getLogger("rune.redis")
_BATCH = 1000
"""Timers that one script moves."""
_NEVER = float("inf")
Change = tuple[str, str, str | bytes]
"""A timer's name in the index, `due`, `claimed`, `gone`, `done` or `undue`, and a time."""
_BACK = {"due": "undue", "claimed": "done"}
"""How what was put into the index is taken out again, unless somebody has changed it since."""


class Timers:
    """Claims, discharges, and hears of timers that are due earlier than those before."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._earlier = asyncio.Event()
        self._told = _NEVER
        """What `next_due` said last: whoever sleeps, sleeps until then."""
        self._listening: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    # --- the index -----------------------------------------------------------------------------------------

    async def follow(self, execution: str, changes: Sequence[Any]) -> None:
        """Bring the index up to date with what a script did to an execution's timers."""
        await self._index([(_name(execution, id.decode()), what.decode(), at) for id, what, at in changes])
        gone = [id for id, what, _ in changes if what == b"gone"]
        if gone:
            await self._client.call(of(execution, "disarmed"), "SREM", of(execution, "disarmed"), *gone)

    async def forget(self, execution: str, ids: Iterable[bytes]) -> None:
        """Take an execution's timers out of the index."""
        await self._index([(_name(execution, id.decode()), "gone", "0") for id in ids])

    async def _index(self, changes: Sequence[Change]) -> None:
        for start in range(0, len(changes), _BATCH):
            flat = itertools.chain.from_iterable(changes[start : start + _BATCH])
            await self._client.script(load("index"), (DUE, CLAIMED), CHANNEL, *flat)
        await self._recheck([change for change in changes if change[1] in _BACK])

    async def _recheck(self, changes: Sequence[Change]) -> None:
        """Take out again what was disarmed before it was in the index, where nobody else would find it.

        Whoever disarms a timer later than this looks takes it out after we put it in.
        """
        if not changes:
            return
        of_execution = _by_execution(name for name, _, _ in changes)
        replies = await asyncio.gather(
            *(
                self._client.script(load("untimely"), (of(execution),), pack(ids))
                for execution, ids in of_execution.items()
            )
        )
        untimely = {
            _name(execution, id.decode())
            for execution, ids in zip(of_execution, replies, strict=True)
            for id in ids
        }
        await self._index([(name, _BACK[what], at) for name, what, at in changes if name in untimely])

    # --- claiming ------------------------------------------------------------------------------------------

    async def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        """See `State.claim`."""
        claimed: list[Timer] = []
        while len(claimed) < limit:
            asked = min(_BATCH, limit - len(claimed))
            names = await self._client.script(
                load("claim"), (DUE, CLAIMED), repr(float(now)), asked, repr(float(until))
            )
            claimed += await self._take([name.decode() for name in names], now, until)
            if len(names) < asked:
                break
        return claimed

    async def _take(self, names: Sequence[str], now: float, until: float) -> list[Timer]:
        """Take what the index says is due; where it is behind the truth, bring it up to date."""
        of_execution = _by_execution(names)
        replies = await asyncio.gather(
            *(
                self._client.script(
                    load("take"), (of(execution),), repr(float(now)), repr(float(until)), pack(ids)
                )
                for execution, ids in of_execution.items()
            )
        )
        taken: dict[str, Timer] = {}
        changes: list[Change] = []
        for (execution, ids), reply in zip(of_execution.items(), replies, strict=True):
            for id, (what, *rest) in zip(ids, reply, strict=True):
                name = _name(execution, id)
                if what == b"taken":
                    taken[name] = Timer(id, until, rest[1], bool(rest[0]), execution, float(rest[2]))
                elif what == b"gone":
                    changes.append((name, "done", repr(float(until))))
                else:
                    changes.append((name, what.decode(), rest[0]))
        await self._index(changes)
        return [taken[name] for name in names if name in taken]

    async def discharge(self, timers: Sequence[Timer]) -> None:
        """See `State.discharge`."""
        claims: dict[str, list[tuple[str, float | None, bool]]] = {}
        for timer in timers:
            claims.setdefault(timer.execution, []).append((timer.id, timer.due, timer.sleeping))
        now = repr(self._clock())
        await asyncio.gather(
            *(
                self._client.script(load("discharge"), (of(execution),), now, pack(ours))
                for execution, ours in claims.items()
            )
        )
        await self._index([(_name(t.execution, t.id), "done", repr(float(t.due or 0))) for t in timers])

    async def find(self, execution: str, id: str) -> Timer | None:
        """See `State.timer`."""
        texts = await asyncio.gather(
            *(
                self._client.call(of(execution, key), "HGET", of(execution, key), id)
                for key in ("sleepers", "timers")
            )
        )
        for sleeping, text in zip((True, False), texts, strict=True):
            if text is not None:
                due, claimed, task = text.split(b" ", 2)
                at = due if claimed == b"-" else claimed
                return Timer(id, None if at == b"-" else float(at), task, sleeping, execution)
        return None

    async def wake(self, execution: str, id: str, task: bytes, due: float) -> bool:
        """See `State.wake`."""
        woken, changes = await self._client.script(
            load("rouse"), (of(execution),), id, repr(float(due)), task
        )
        await self.follow(execution, changes)
        return bool(woken)

    # --- waiting -------------------------------------------------------------------------------------------

    async def next_due(self) -> float | None:
        """See `State.next_due`."""
        await self._listen()
        # From here on, whatever is armed to come earlier ends the sleep that follows.
        self._earlier.clear()
        self._told = _NEVER
        firsts = await asyncio.gather(
            *(self._client.call(key, "ZRANGE", key, 0, 0, "WITHSCORES") for key in (DUE, CLAIMED))
        )
        due = min((float(score) for _, score in filter(None, firsts)), default=None)
        self._told = _NEVER if due is None else due
        return due

    async def armed(self, timeout: float | None) -> None:
        """See `State.armed`."""
        await self._listen()
        try:
            await asyncio.wait_for(self._earlier.wait(), timeout)
        except TimeoutError:
            return

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = asyncio.create_task(self._hear())
        await self._subscribed.wait()

    async def _hear(self) -> None:
        """Listen for earlier timers, for ever."""
        while True:
            try:
                connection = await self._client.another(DUE)
            except Trouble as error:
                _log.debug("not listening for timers: %s", error)
                await asyncio.sleep(0.2)
                continue
            connection.subscribe(CHANNEL, self._heard)
            try:
                await asyncio.shield(connection.closed)
            finally:
                self._subscribed.clear()
                connection.close()

    def _heard(self, message: Any) -> None:
        if message[0] == b"subscribe":
            self._subscribed.set()
            # What was armed while nobody listened may be earlier.
            self._earlier.set()
        elif float(message[2]) < self._told:
            self._earlier.set()

    async def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)


def _name(execution: str, id: str) -> str:
    return f"{execution}/{id}"


def _by_execution(names: Iterable[str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name in names:
        execution, _, id = name.partition("/")
        grouped.setdefault(execution, []).append(id)
    return grouped
