"""What `rune worker` and `rune scheduler` share: where the servers are, signals, and several processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import click

from rune.cli.command import Exit, say
from rune.cli.logs import log_to_stderr
from rune.core.errors import InfrastructureError, RuneError
from rune.settings import Settings

__all__ = ["Serve", "serve", "server_options"]

_log = logging.getLogger("rune.process")

_REST = 1.0
"""Seconds before a process that died is started again."""

Serve = Callable[[Awaitable[object]], Coroutine[Any, Any, None]]
"""Works until what it is given comes."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def server_options(function: _Function) -> _Function:
    """The options that say where the servers are and how to log."""
    for option in reversed(
        (
            click.option(
                "--broker", "broker_url", metavar="URL", help="RabbitMQ; instead of $RUNE_BROKER_URL."
            ),
            click.option("--state", "state_url", metavar="URL", help="Redis; instead of $RUNE_STATE_URL."),
            click.option("--quorum", is_flag=True, default=None, help="Declare quorum queues."),
            click.option(
                "--grace", type=float, metavar="SECONDS", help="How long what is running may take to end."
            ),
            click.option("--log-format", type=click.Choice(["plain", "json"]), help="How to log."),
        )
    ):
        function = option(function)
    return function


def serve(settings: Settings, work: Serve, processes: int = 1) -> int:
    """Run `work` in this process, or in several that it looks after, until a signal; the exit code."""
    log_to_stderr(settings.log_format)
    if processes > 1:
        return _Flock(work, processes).tend()
    return asyncio.run(_work(work))


async def _work(work: Serve, orphaned: int | None = None) -> int:
    """Work until a signal; the second one ends this process at once, and loses nothing either."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def stopping(number: int) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        _log.info("%s: stopping", signal.Signals(number).name)
        if not stop.done():
            stop.set_result(number)

    def alone() -> None:
        assert orphaned is not None
        loop.remove_reader(orphaned)
        stopping(signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping, number)
    if orphaned is not None:
        loop.add_reader(orphaned, alone)
    await work(stop)
    return 128 + stop.result()


class _Flock:
    """Several processes that do the same; one that dies is started again."""

    def __init__(self, work: Serve, count: int) -> None:
        self._work = work
        self._count = count
        self._children: set[int] = set()
        self._stopping = 0
        """The signal that ends us."""
        # A child reads the end of this pipe when its parent is gone, however it went.
        self._reads, self._writes = os.pipe()

    def tend(self) -> int:
        """Look after the children until a signal has ended them; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        code = 0
        while not self._stopping and len(self._children) < self._count:
            self._start()
        while self._children:
            pid, status = os.wait()
            self._children.discard(pid)
            ended = os.waitstatus_to_exitcode(status)
            if self._stopping:
                continue
            if ended in (Exit.WRONG, Exit.INFRASTRUCTURE):
                # It has said why; the others will fare no better.
                code = ended
                self._stop(signal.SIGTERM)
            else:
                _log.error("process %d ended with %d; starting another", pid, ended)
                time.sleep(_REST)
                if not self._stopping:
                    self._start()
        return code or 128 + self._stopping

    def _stop(self, number: int, _: object = None) -> None:
        self._stopping = number
        for pid in self._children:
            os.kill(pid, number)

    def _start(self) -> None:
        pid = os.fork()
        if pid:
            self._children.add(pid)
            return
        code: int = Exit.FAILED
        try:
            # Ctrl-C reaches it through us only: twice would be at once.
            os.setpgid(0, 0)
            os.close(self._writes)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            code = asyncio.run(_work(self._work, self._reads))
        except InfrastructureError as error:
            say(f"error: {error}")
            code = Exit.INFRASTRUCTURE
        except RuneError as error:
            say(f"error: {error}")
            code = Exit.WRONG
        except Exception as error:  # noqa: BLE001 - the parent starts another
            _log.critical("this is a bug", exc_info=error)
        finally:
            os._exit(code)
