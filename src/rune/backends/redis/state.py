"""State in Redis: each call one script over the keys of one execution."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from rune.backends.redis.client import Client
from rune.backends.redis.encoding import (
    decode_answer,
    decode_folds,
    decode_lease,
    encode_commits,
    encode_seeds,
    pack,
)
from rune.backends.redis.keys import of
from rune.backends.redis.looking import Looking
from rune.backends.redis.members import Members
from rune.backends.redis.registry import Registry
from rune.backends.redis.scripts import load
from rune.backends.redis.timers import Timers
from rune.core.histogram import Histogram
from rune.core.holding import Holding, Standing
from rune.core.operations import Answer, Arrival, BarrierView, Commit, Lease, MergeView, Place, Seed, Timer

__all__ = ["RedisState"]

_PAGE = 1000
"""Slots that one command reads."""
_SWEEP = 500
"""Rows that one call forgets."""
_VIEW = ("closed", "total", "done", "failed", "skipped", "failure", "folds", "first_error")


class RedisState:
    """State in Redis, shared by any number of processes."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._registry = Registry(client, clock)
        self._timers = Timers(client, clock)
        self._looking = Looking(client, clock)
        self.members = Members(client, clock)
        client.probe = self._registry.check
        self._holder = secrets.token_hex(8)
        self._calls = itertools.count()

    # --- Redis itself --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> str:
        """Names what Redis holds. If it changes, everything was lost; see `check`."""
        return self._registry.epoch

    @property
    def up(self) -> asyncio.Event:
        """Set while Redis answers; calls made while it does not wait for it."""
        return self._client.up

    @property
    def durations(self) -> Histogram:
        """Seconds that calls of Redis took."""
        return self._client.durations

    async def ready(self) -> None:
        """Return when Redis answers."""
        await self.up.wait()

    async def check(self) -> bool:
        """Ask Redis for its epoch; False if it has changed since we last knew."""
        return await self._registry.check()

    async def close(self) -> None:
        """Leave Redis."""
        await self._timers.close()
        await self._client.close()

    async def _ask(self, execution: str, call: Callable[[str], Awaitable[Any]]) -> Any:
        """Make a call that says whether the execution may be new; None if it is buried."""
        reply = await call(await self._registry.meet(execution))
        while reply == b"unknown":
            reply = await call(await self._registry.miss(execution))
        if reply == b"buried":
            await self._registry.late(execution)
            return None
        return reply

    # --- steps ---------------------------------------------------------------------------------------------

    async def apply(self, execution: str, commits: Sequence[Commit]) -> list[Answer]:
        script, now, packed = load("apply"), repr(self._clock()), encode_commits(commits)
        reply = await self._ask(
            execution, lambda met: self._client.script(script, (of(execution),), now, met, packed)
        )
        if reply is None:
            return [Answer(gone=True) for _ in commits]
        answers, timers, garbage = reply
        if timers:
            await self._timers.follow(execution, timers)
        if garbage:
            await self._sweep(execution)
        return [decode_answer(answer) for answer in answers]

    async def _sweep(self, execution: str) -> None:
        while await self._client.script(load("sweep"), (of(execution),), _SWEEP):
            pass

    async def seed(self, execution: str, seeds: Sequence[Seed]) -> None:
        script, now, packed = load("seed"), repr(self._clock()), encode_seeds(seeds)
        await self._ask(
            execution, lambda met: self._client.script(script, (of(execution),), now, met, packed)
        )

    async def lease(
        self, execution: str, steps: Sequence[tuple[str, Place]], attempt: int, until: float
    ) -> list[Lease]:
        script, now = load("lease"), repr(self._clock())
        holder, packed = f"{self._holder}:{next(self._calls)}", pack(list(steps))
        replies = await self._ask(
            execution,
            lambda met: self._client.script(
                script, (of(execution),), now, met, attempt, repr(float(until)), holder, packed
            ),
        )
        return [Lease(gone=True) for _ in steps] if replies is None else [decode_lease(r) for r in replies]

    async def renew(self, execution: str, step: str, fence: int, until: float) -> bool:
        script = load("renew")
        return bool(await self._client.script(script, (of(execution),), step, fence, repr(float(until))))

    async def give_back(self, execution: str, steps: Sequence[tuple[str, int]]) -> None:
        await self._client.script(load("give_back"), (of(execution),), self._holder, pack(list(steps)))

    # --- values --------------------------------------------------------------------------------------------

    async def put(self, execution: str, values: Mapping[str, bytes]) -> None:
        script, now = load("put"), repr(self._clock())
        flat: list[str | bytes] = [part for pair in values.items() for part in pair]
        await self._ask(execution, lambda met: self._client.script(script, (of(execution),), now, met, *flat))

    async def get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        if not hashes:
            return {}
        found = await self._client.call(of(execution, "v"), "HMGET", of(execution, "v"), *hashes)
        return {hash: data for hash, data in zip(hashes, found, strict=True) if data is not None}

    async def variables(self, execution: str) -> dict[str, bytes]:
        key = of(execution, "c")
        found = iter(await self._client.call(key, "HGETALL", key))
        return {name.decode(): data for name, data in zip(found, found, strict=True)}

    # --- joins ---------------------------------------------------------------------------------------------

    async def barrier(self, execution: str, barrier: str) -> BarrierView | None:
        key = of(execution, f"b:{barrier}")
        closed, *numbers, failure, folds, error = await self._client.call(key, "HMGET", key, *_VIEW)
        if closed != b"1":
            return None
        total, done, failed, skipped = map(int, numbers)
        succeeded = done - failed - skipped
        return BarrierView(total, succeeded, failed, skipped, failure.decode(), decode_folds(folds), error)

    async def slots(self, execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
        key = of(execution, f"i:{barrier}")
        pages = [range(at, min(at + _PAGE, start + limit)) for at in range(start, start + limit, _PAGE)]
        found = await asyncio.gather(*(self._client.call(key, "HMGET", key, *page) for page in pages))
        slots = zip(itertools.chain(*pages), itertools.chain(*found), strict=True)
        return [(item, data) for item, data in slots if data]

    async def merge(self, execution: str, merge: str) -> MergeView | None:
        key = of(execution, f"m:{merge}")
        flat = await self._client.call(key, "HGETALL", key)
        row = dict(zip(flat[::2], flat[1::2], strict=True))
        state = row.get(b"state", b"waiting").decode()
        if state in ("waiting", "dead"):
            return None
        arrivals = [
            Arrival(int(order), field[2:].decode(), payload)
            for field, text in row.items()
            if field.startswith(b"a:") and text
            for order, _, payload in [text.partition(b" ")]
        ]
        winner = row.get(b"winner", b"").decode() if row[b"need"] else ""
        return MergeView(arrivals, state if state != "open" else "", int(row[b"expected"]), winner)

    # --- executions ----------------------------------------------------------------------------------------

    async def bury(self, execution: str, keep: Iterable[str], until: float) -> None:
        milliseconds = max(1, round((until - self._clock()) * 1000))
        kept = list(keep)
        parts = [kept[start : start + _SWEEP] for start in range(0, len(kept), _SWEEP)]
        unindexed = pack([])
        while True:
            part = pack(parts.pop() if parts else [])
            more = "more" if parts else ""
            left = await self._client.script(
                load("bury"), (of(execution),), milliseconds, _SWEEP, unindexed, part, more
            )
            if left == 1:
                break
            await self._timers.forget(execution, left)
            unindexed = pack([id.decode() for id in left])
        await self._registry.ended(execution)

    async def park(self, execution: str, step: str, task: bytes) -> bool:
        return bool(await self._client.script(load("park"), (of(execution),), step, task))

    async def pause(self, execution: str) -> bool:
        paused = await self._client.script(load("pause"), (of(execution),), "pause")
        await self._registry.note_pause(execution)
        return bool(paused)

    async def unpause(self, execution: str) -> list[bytes]:
        parked: list[bytes] = await self._client.script(load("pause"), (of(execution),), "go on")
        await self._registry.note_pause(execution)
        return parked

    async def unparked(self, execution: str) -> None:
        await self._client.call(of(execution, "unparked"), "UNLINK", of(execution, "unparked"))

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        return await self._registry.news()

    async def live(self) -> list[str]:
        return await self._registry.live()

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        return await self._looking.standings(executions)

    async def holding(self, execution: str, limit: int) -> Holding | None:
        return await self._looking.holding(execution, limit)

    # --- timers --------------------------------------------------------------------------------------------

    async def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        return await self._timers.claim(now, limit, until)

    async def discharge(self, timers: Sequence[Timer]) -> None:
        await self._timers.discharge(timers)

    async def timer(self, execution: str, id: str) -> Timer | None:
        return await self._timers.find(execution, id)

    async def wake(self, execution: str, timer: str, task: bytes, due: float) -> bool:
        return await self._timers.wake(execution, timer, task, due)

    async def undue(self, execution: str, cursor: str) -> tuple[list[Timer], str]:
        return await self._looking.undue(execution, cursor)

    async def timers(self, limit: int) -> list[Timer]:
        return await self._looking.timers(limit)

    async def next_due(self) -> float | None:
        return await self._timers.next_due()

    async def armed(self, timeout: float | None) -> None:
        await self._timers.armed(timeout)
