"""The recorder: what the runtime tells becomes history, and is acknowledged when it is."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from rune.core.errors import InfrastructureError, RuneError
from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.history import History
from rune.history.recording import News
from rune.master.portions import Portion, portions
from rune.master.runtime import Runtime

__all__ = ["Recorder"]

_log = logging.getLogger("rune.recorder")

_BATCH = 1_000
"""Messages that one transaction takes at most."""
_BATCH_BYTES = 8 << 20
"""Bytes of outputs and contexts that it takes, if that is more than one message."""
_FETCHED_BYTES = 16 << 20
"""Bytes of values that are fetched at a time, if that is more than what one message refers to."""
_BACKLOG, _BACKLOG_BYTES = 10_000, 64 << 20
"""Messages, and bytes in them, held here; what more there is waits where it is."""
_REST, _LONGEST_REST = 0.1, 5.0
"""Seconds before a write is tried again while the database is away."""
_LAST_WORDS = 5.0
"""Seconds in which a recorder that is told to stop may still write what it holds. What is left then was not
acknowledged: it comes again, unless the runtime ends with this process."""

_MAKES_NO_SENSE = (RuneError, ArithmeticError, LookupError, TypeError, ValueError)

T = TypeVar("T")

Message = NodeStatusMessage | CompletionMessage
Values = Mapping[tuple[str, str], bytes]
"""By execution and hash."""


class _Work(Struct, eq=False):
    """Some messages, what they refer to, and whom to tell that they are stored."""

    messages: Sequence[Message]
    values: Values
    done: Callable[[], Awaitable[None]]
    weight: int


class Recorder:
    """Writes in batches: while one is written the next gathers, so that it grows with the backlog.

    Nothing is acknowledged before it is stored. While the database is away it holds what it has, takes no
    more, and tries again.
    """

    def __init__(self, history: History, runtime: Runtime) -> None:
        self.on_recorded: Callable[[Iterable[str]], None] = lambda executions: None
        """Called with the executions of which something new is stored."""
        self.on_ended: Callable[[Sequence[CompletionMessage]], None] = lambda completions: None
        """Called with the completions of executions that are stored as ended now."""
        self._history = history
        self._runtime = runtime
        self._waiting: deque[_Work] = deque()
        self._held = 0
        self._weight = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def behind(self) -> int:
        """Messages that have come and are not stored yet."""
        return self._held

    async def run(self) -> None:
        """Record until cancelled; then once more what has come by then."""
        loops = [asyncio.ensure_future(loop) for loop in (self._hear(), self._hear_ends(), self._write())]
        try:
            await asyncio.wait(loops, return_when=asyncio.FIRST_EXCEPTION)
            for loop in loops:
                if loop.done():
                    loop.result()
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._say_last_words()

    # --- hearing -------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        async for batch in self._runtime.statuses():
            several = list(portions(batch.messages, _BATCH, _FETCHED_BYTES))
            for portion in several:
                # In order: when the last of them are stored, all are.
                done = batch.done if portion is several[-1] else _nothing
                await self._take(await self._work_of(portion, done))

    async def _work_of(self, portion: Portion, done: Callable[[], Awaitable[None]]) -> _Work:
        values: dict[tuple[str, str], bytes] = {}
        for execution, hashes in portion.refs.items():
            values |= await self._values(execution, list(hashes))
        weight = portion.weight + sum(map(len, values.values()))
        return _Work(portion.messages, values, done, weight)

    async def _hear_ends(self) -> None:
        async for completion in self._runtime.completions():
            values: Values = {}
            if completion.refs:
                values = await self._values(completion.execution_id, [ref.hash for ref in completion.refs])
            weight = sum(map(len, values.values())) + sum(
                len(bytes(value)) for value in completion.final_context.values()
            )
            done = partial(self._runtime.completed, completion)
            await self._take(_Work([completion], values, done, weight))

    async def _values(self, execution: str, hashes: Sequence[str]) -> Values:
        """What messages only refer to: from the runtime, which may soon forget it."""

        async def fetch() -> Values:
            missing = await self._history.values.missing(execution, hashes)
            found = await self._runtime.values(execution, missing) if missing else {}
            return {(execution, hash): data for hash, data in found.items()}

        return await _insist(fetch)

    async def _take(self, work: _Work) -> None:
        self._waiting.append(work)
        self._held += len(work.messages)
        self._weight += work.weight
        self._more.set()
        while self._held > _BACKLOG or self._weight > _BACKLOG_BYTES:
            self._room.clear()
            await self._room.wait()

    # --- writing -------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        while True:
            await self._more.wait()
            several = self._next()
            if not several:
                self._more.clear()
                continue
            try:
                await self._store(several)
            except asyncio.CancelledError:
                # It may or may not have been written: to write it again does no harm.
                self._waiting.extendleft(reversed(several))
                raise
            self._held -= sum(len(work.messages) for work in several)
            self._weight -= sum(work.weight for work in several)
            self._room.set()
            await _tell(several)

    def _next(self) -> list[_Work]:
        several: list[_Work] = []
        count = weight = 0
        while self._waiting:
            work = self._waiting[0]
            count += len(work.messages)
            weight += work.weight
            if several and (count > _BATCH or weight > _BATCH_BYTES):
                break
            several.append(self._waiting.popleft())
        return several

    async def _store(self, several: Sequence[_Work]) -> None:
        messages = [message for work in several for message in work.messages]
        values = {key: data for work in several for key, data in work.values.items()}
        news = await self._record(messages, values)
        changed = {execution for one in news for execution in one.changed}
        ended = {execution for one in news for execution in one.ended}
        if changed:
            self.on_recorded(changed)
        if ended:
            self.on_ended(
                [m for m in messages if isinstance(m, CompletionMessage) and m.execution_id in ended]
            )

    async def _record(self, messages: Sequence[Message], values: Values) -> list[News]:
        """Record all of this; a message that makes no sense is left out, and told in the log."""
        statuses = [message for message in messages if isinstance(message, NodeStatusMessage)]
        completions = [message for message in messages if isinstance(message, CompletionMessage)]
        try:
            return [await _insist(lambda: self._history.recording.record(statuses, completions, values))]
        except _MAKES_NO_SENSE as error:
            if len(messages) == 1:
                _log.error("left out of the history: %s", messages[0], exc_info=error)
                return []
        # Which one is it?
        half = len(messages) // 2
        return [
            *await self._record(messages[:half], values),
            *await self._record(messages[half:], values),
        ]

    async def _say_last_words(self) -> None:
        """Write what is held, if that is possible now."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                while several := self._next():
                    await self._store(several)
                    self._held -= sum(len(work.messages) for work in several)
                    await _tell(several)
        except TimeoutError:
            _log.warning("%d messages were not recorded", self._held)
        self._waiting.clear()
        self._held = self._weight = 0


async def _nothing() -> None:
    """There is nobody to tell yet."""


async def _tell(several: Iterable[_Work]) -> None:
    """Acknowledge what is stored; where that fails it comes again, and changes nothing."""
    for work in several:
        try:
            await work.done()
        except InfrastructureError as error:
            _log.warning("%s; what it had sent comes again", error)


async def _insist(work: Callable[[], Awaitable[T]]) -> T:
    """Do this, however long that takes: while a server is away, again and again."""
    rest = _REST
    while True:
        try:
            return await work()
        except InfrastructureError as error:
            _log.warning("%s; trying again", error)
            await asyncio.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)
