"""What `rune worker` and `rune scheduler` share: where the servers are, signals, and several processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import click

from rune.cli.command import Exit, say
from rune.cli.logs import log_to_stderr
from rune.core.errors import InfrastructureError, RuneError
from rune.settings import Settings

__all__ = ["Serve", "metrics_options", "serve", "server_options"]

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


def metrics_options(function: _Function) -> _Function:
    """The options that say where to serve metrics."""
    port = click.option("--metrics-port", type=int, metavar="N", help="Serve /metrics and /health there.")
    host = click.option("--metrics-host", metavar="ADDRESS", help="The address of that port.")
    return port(host(function))


def serve(settings: Settings, *works: Serve) -> int:
    """Do a work in this process, or several in as many that it looks after, until a signal; the exit code."""
    log_to_stderr(settings.log_format)
    if len(works) > 1:
        return _Flock(works).tend()
    return asyncio.run(_work(works[0]))


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
    return Exit.OK


class _Flock:
    """Several processes; one that dies is started again."""

    def __init__(self, works: Sequence[Serve]) -> None:
        self._works = works
        self._children: dict[int, Serve] = {}
        """What each process does."""
        self._stopping = False
        # A child reads the end of this pipe when its parent is gone, however it went.
        self._reads, self._writes = os.pipe()

    def tend(self) -> int:
        """Look after the children until a signal has ended them; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        code = 0
        for work in self._works:
            if not self._stopping:
                self._start(work)
        while self._children:
            pid, status = os.wait()
            work = self._children.pop(pid)
            ended = os.waitstatus_to_exitcode(status)
            if self._stopping:
                # As a shell says it of one that a signal has ended.
                code = code or (ended if ended >= 0 else 128 - ended)
            elif ended in (Exit.WRONG, Exit.INFRASTRUCTURE):
                # It has said why; the others will fare no better.
                code = ended
                self._stop(signal.SIGTERM)
            else:
                _log.error("process %d ended with %d; starting another", pid, ended)
                time.sleep(_REST)
                if not self._stopping:
                    self._start(work)
        return code

    def _stop(self, number: int, _: object = None) -> None:
        self._stopping = True
        for pid in self._children:
            os.kill(pid, number)

    def _start(self, work: Serve) -> None:
        pid = os.fork()
        if pid:
            self._children[pid] = work
            if self._stopping:
                # The signal came before we knew whom to pass it on to.
                os.kill(pid, signal.SIGTERM)
            return
        code: int = Exit.FAILED
        try:
            # Ctrl-C reaches it through us only: twice would be at once.
            os.setpgid(0, 0)
            os.close(self._writes)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            code = asyncio.run(_work(work, self._reads))
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
