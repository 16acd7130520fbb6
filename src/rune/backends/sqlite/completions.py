"""Completions in SQLite, each until it is acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

import msgspec

from rune.backends.sqlite.database import Database
from rune.backends.sqlite.messages import Messages
from rune.backends.sqlite.signal import Signal
from rune.core.messages import CompletionMessage, encode
from rune.core.ports import DeadLetter

__all__ = ["Completions"]

_PAGE = 100

_decode = msgspec.json.Decoder(CompletionMessage).decode


class Completions:
    """The ends of executions; one that is published twice stands once."""

    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._connection = database.connection
        self._messages = messages
        self._published = Signal()
        self._count = 0
        self._told = 0

    def publish(self, completions: Sequence[CompletionMessage]) -> None:
        """Store completions, as part of a transaction."""
        for completion in completions:
            self._connection.execute(
                "INSERT OR REPLACE INTO completion (execution, body) VALUES (?, ?)",
                (completion.execution_id, encode(completion)),
            )
            self._count += 1

    def committed(self) -> None:
        """What was published so far is stored."""
        if self._told != self._count:
            self._told = self._count
            self._published.send()

    async def all(self) -> AsyncIterator[CompletionMessage]:
        """Those that are stored, then those to come."""
        seen = 0
        while True:
            count = self._count
            page = await self._database.read(partial(self._page, seen))
            for id, body in page:
                seen = id
                try:
                    completion = _decode(body)
                except msgspec.DecodeError as error:
                    await self._database.run(partial(self._bury, id, body, str(error)))
                else:
                    yield completion
            if not page and count == self._count:
                await self._published.wait()

    def _page(self, after: int) -> list[tuple[int, bytes]]:
        return self._connection.execute(
            "SELECT id, body FROM completion WHERE id > ? ORDER BY id LIMIT ?", (after, _PAGE)
        ).fetchall()

    def _bury(self, id: int, body: bytes, reason: str) -> None:
        self._messages.bury(None, DeadLetter(f"not a CompletionMessage: {reason}", body))
        self._connection.execute("DELETE FROM completion WHERE id = ?", (id,))

    async def forget(self, completion: CompletionMessage) -> None:
        """A completion has been acknowledged."""
        await self._database.run(partial(self._delete, completion.execution_id))

    def _delete(self, execution: str) -> None:
        self._connection.execute("DELETE FROM completion WHERE execution = ?", (execution,))
