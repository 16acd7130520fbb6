"""Private servers: a child that dies with the tests, and comes back on the same data after a kill -9."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["Process", "answers", "binary", "free_port"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def binary(name: str, package: str) -> str:
    """The path of a server's program. Where it is missing: a failure in CI, a skip elsewhere."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/lib/rabbitmq/bin:/usr/sbin:/usr/bin")
    if found is None:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"{name} is missing: sudo apt-get install --no-install-recommends {package}")
    return found


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether somebody listens on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.2):
            return True
    except OSError:
        return False


def _die_with_us() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child process that does not outlive this one."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        ready: Callable[[], bool],
        *,
        environ: Mapping[str, str] | None = None,
        patience: float = 30.0,
    ) -> None:
        self._command = list(command)
        self._directory = directory
        self._ready = ready
        self._environ = environ
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it printed."""
        return (self._directory / "output.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, on the data that is there, and wait until it is ready."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it, without waiting."""
        with (self._directory / "output.log").open("ab") as output:
            self._child = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=None if self._environ is None else dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_us,
            )

    def await_ready(self) -> None:
        """Wait until it is ready."""
        limit = time.monotonic() + self._patience
        while not self._ready():
            if self._child is None or self._child.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise RuntimeError(f"{self._command[0]} did not start:\n{self.log[-3000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Let it hang, without an end to its connections."""
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(how)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
