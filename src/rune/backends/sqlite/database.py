"""One connection, and one transaction for all that is asked of it in one turn of the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from rune.backends.sqlite.opening import FileLock, connect
from rune.backends.sqlite.trouble import trouble
from rune.core.errors import InfrastructureError

__all__ = ["Database", "Part"]

T = TypeVar("T")

_LOG_STEP = 16 << 20
"""Bytes by which the write-ahead log grows between two checkpoints."""
_LOG_LIMIT = 4 * _LOG_STEP
"""Bytes from which on writing waits for the checkpoint, which could otherwise never catch up."""
_LOOK_EVERY = 32
"""Commits between two looks at the log's size."""

_log = logging.getLogger("rune.sqlite")


class Part(Protocol):
    """Keeps something in memory that belongs to the transaction."""

    def prepare(self) -> None:
        """Write what is pending: the transaction is about to be committed."""

    def committed(self) -> None:
        """It was committed: let others see."""

    def rolled_back(self) -> None:
        """It was not: forget what it had changed."""


class _Call:
    __slots__ = ("future", "result", "work")

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future
        self.result: Any = None

    def answer(self) -> None:
        if not self.future.done():
            self.future.set_result(self.result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Database:
    """Group commit on one connection.

    What is asked in one turn of the event loop is carried out in the next, in order, in one transaction, and
    answered when that is committed. Under NORMAL a commit does not wait for the disk, so it is made right
    here; under FULL it does, so a thread makes it, while calls pile up for the next one.

    A transaction that fails leaves nothing behind, in the file or in memory; all its callers get the error,
    and the next one starts afresh. Only if rolling back fails too, every later call fails as well.
    """

    def __init__(self, path: str, synchronous: str) -> None:
        self.path = path
        """As its user knows it."""
        self.file = os.path.abspath(path)
        """Where it is, wherever the process goes."""
        self._lock = FileLock(path)
        try:
            self.connection = connect(path, synchronous)
        except BaseException:
            self._lock.release()
            raise
        self._full = synchronous == "full"
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(2, "rune-sqlite")
        self._parts: list[Part] = []
        self._calls: list[_Call] = []
        self._scheduled = False
        self._committing: asyncio.Future[sqlite3.Cursor] | None = None
        """While the connection is in the hands of a thread."""
        self._holding = False
        """Writing waits for a checkpoint."""
        self._commits = 0
        self._log_mark = _LOG_STEP
        """The size of the log at which the next checkpoint is made."""
        self._checkpoint: asyncio.Task[None] | None = None
        self._broken: InfrastructureError | None = None

    def join(self, part: Part) -> None:
        """Have `part` take part in every transaction."""
        self._parts.append(part)

    # --- asking --------------------------------------------------------------------------------------------

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do `work` in the next transaction; its result, once that is committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._broken is not None:
            future.set_exception(self._broken)
            return future
        self._calls.append(_Call(work, future))
        self._schedule()
        return future

    async def read(self, work: Callable[[], T]) -> T:
        """Do `work`, which only reads, on what has been committed."""
        if self._committing:
            return await self.run(work)
        if self._broken is not None:
            raise self._broken
        try:
            return work()
        except sqlite3.Error as error:
            raise trouble(self.path, error) from error

    # --- transactions --------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._calls and not (self._scheduled or self._committing or self._holding):
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._holding:
            return
        calls, self._calls = self._calls, []
        if not self._carried_out(calls):
            return
        if self._full:
            self._committing = self._loop.run_in_executor(self._threads, self.connection.execute, "COMMIT")
            self._committing.add_done_callback(lambda commit: self._commit_ended(calls, commit))
        else:
            self._commit(calls)

    def _carried_out(self, calls: list[_Call]) -> bool:
        """Do all but the commit; if that is impossible, whoever asked has been told."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            for call in calls:
                call.result = call.work()
            for part in self._parts:
                part.prepare()
        except sqlite3.Error as error:
            self._fail(calls, error)
        except Exception as error:  # noqa: BLE001 - what is wrong with one call must not touch the others
            self._part_company(calls, error)
        else:
            return True
        return False

    def _part_company(self, calls: list[_Call], error: Exception) -> None:
        """One of these calls makes no sense: give each a transaction of its own to find out which."""
        self._roll_back()
        if len(calls) == 1:
            calls[0].fail(error)
            return
        for call in calls:
            if self._broken is not None:
                call.fail(self._broken)
            elif self._carried_out([call]):
                self._commit([call])

    def _commit(self, calls: list[_Call]) -> None:
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(calls, error)
        else:
            self._succeed(calls)

    def _commit_ended(self, calls: list[_Call], commit: asyncio.Future[sqlite3.Cursor]) -> None:
        self._committing = None
        error = commit.exception()
        if error is None:
            self._succeed(calls)
        elif isinstance(error, sqlite3.Error):
            self._fail(calls, error)
        else:
            raise error
        self._schedule()

    def _succeed(self, calls: list[_Call]) -> None:
        for part in self._parts:
            part.committed()
        for call in calls:
            call.answer()
        self._commits += 1
        if self._commits % _LOOK_EVERY == 0:
            self._look_at_log()

    def _fail(self, calls: list[_Call], error: sqlite3.Error) -> None:
        self._roll_back()
        for call in calls:
            # Each its own, for each caller adds its own traceback.
            call.fail(trouble(self.path, error))

    def _roll_back(self) -> None:
        try:
            # After some errors SQLite has rolled back by itself.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._broken = trouble(self.path, error)
        for part in self._parts:
            part.rolled_back()

    def _look_at_log(self) -> None:
        size = self._log_size()
        if self._checkpoint is None and size > self._log_mark:
            self._checkpoint = self._loop.create_task(self._tidy())
        elif self._checkpoint is not None and size > 2 * _LOG_LIMIT:
            # It is written faster than it is moved: wait for the checkpoint that is under way.
            self._holding = True

    # --- checkpoints ---------------------------------------------------------------------------------------

    def _log_size(self) -> int:
        try:
            return os.stat(f"{self.file}-wal").st_size
        except FileNotFoundError:
            return 0

    async def _tidy(self) -> None:
        """Move the log into the database; what is committed meanwhile stays in the log."""
        try:
            await self._loop.run_in_executor(self._threads, self._checkpoint_now)
            self._log_mark = self._log_size() + _LOG_STEP
            if self._log_mark > _LOG_LIMIT:
                # The log starts anew only when all of it has been moved: let nobody add to it meanwhile.
                self._holding = True
                if self._committing is not None:
                    await asyncio.wait({self._committing})
                await self._loop.run_in_executor(self._threads, self._checkpoint_now)
                self._log_mark = _LOG_STEP
        except sqlite3.Error as error:
            _log.warning("%s; the log is kept for now", trouble(self.path, error))
        finally:
            self._holding = False
            self._checkpoint = None
            self._schedule()

    def _checkpoint_now(self) -> None:
        # A connection of its own: the loop's goes on being used.
        connection = sqlite3.connect(self.file, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            connection.close()

    # --- closing -------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Carry out what has been asked, then close the file."""
        try:
            if self._checkpoint is not None:
                await asyncio.wait({self._checkpoint})
            self._log_mark = sys.maxsize
            with suppress(InfrastructureError):
                # Calls are carried out in order: when this one is, all are.
                await self.run(lambda: None)
        finally:
            self._broken = self._broken or InfrastructureError(f"{self.path} has been closed")
            for call in self._calls:
                call.fail(self._broken)
            self._calls.clear()
            self._threads.shutdown()
            self._close()

    def _close(self) -> None:
        try:
            # Closing the last connection also moves the log into the database and removes it.
            self.connection.close()
        except sqlite3.Error as error:
            _log.warning("%s", trouble(self.path, error))
        finally:
            self._lock.release()
