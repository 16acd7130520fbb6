"""One process that carries executions on until they end, or until somebody stops it."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from rune.cli.tally import Tally
from rune.cli.types import Types
from rune.cli.view import LogLines, View, choose, follow
from rune.core.messages import CompletionMessage
from rune.core.workflow import Workflow
from rune.embedded import Embedded
from rune.nodes import services_beside
from rune.settings import Settings

__all__ = ["Session", "Stopped", "advice", "open_session"]


class Stopped(Exception):
    """A signal asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


def advice(database: str, files: str) -> str:
    """How to go on with what was stopped."""
    elsewhere = "" if Path(files).resolve() == Path.cwd() else f" --files {shlex.quote(files)}"
    return f"interrupted; nothing is lost. Continue with: rune resume --db {shlex.quote(database)}{elsewhere}"


class Session:
    """An embedded engine, and an ear for signals."""

    def __init__(self, rune: Embedded, stop: asyncio.Future[int]) -> None:
        self.rune = rune
        self._stop = stop

    async def result(self, execution: str) -> CompletionMessage:
        """Wait for an execution's end; Stopped if a signal comes first."""
        ending = asyncio.ensure_future(self.rune.result(execution))
        first: set[asyncio.Future[Any]] = {ending, self._stop}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            return ending.result()
        ending.cancel()
        raise Stopped(self._stop.result())


@asynccontextmanager
async def open_session(
    settings: Settings,
    types: Types,
    database: str,
    *,
    quiet: bool,
    files: str,
    flow: Workflow | None = None,
) -> AsyncIterator[Session]:
    """Open the engine on a database, show its progress, and listen to signals; `files` is where data lies."""
    services = services_beside(files)
    async with Embedded.open(settings, types, database, services=services) as rune:
        tally = Tally(rune.flows.get)
        if flow is not None:
            tally.add(flow)
        view = choose(tally, quiet=quiet)
        if not quiet:
            # What it calls are executions of their own: the progress is that of the caller.
            rune.listen(lambda statuses: tally.hear([s for s in statuses if s.caller is None]))
        following = asyncio.create_task(follow(view))
        finished = False
        try:
            with _logged(view, logging.WARNING if quiet else logging.INFO):
                yield Session(rune, _stop_on_signals())
            finished = True
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            view.close(finished=finished)


class _logged:  # noqa: N801 - used like a function
    """Sends Rune's log to a view."""

    def __init__(self, view: View, level: int) -> None:
        self._handler = LogLines(view, level)
        self._log = logging.getLogger("rune")
        self._before = self._log.level, self._log.propagate

    def __enter__(self) -> None:
        self._log.addHandler(self._handler)
        self._log.setLevel(self._handler.level)
        self._log.propagate = False

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self._handler)
        self._log.level, self._log.propagate = self._before


def _stop_on_signals() -> asyncio.Future[int]:
    """A future that the first SIGINT or SIGTERM completes; a second one kills, and loses nothing either."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def stopping(number: int) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        if not stop.done():
            stop.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping, number)
    return stop
