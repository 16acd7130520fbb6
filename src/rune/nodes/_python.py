"""User code in processes of its own: no secret of the engine in reach, and bounded in time and memory."""

from __future__ import annotations

import array
import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from rune.core.errors import NodeError

__all__ = ["Limits", "Python"]

_SERVER = Path(__file__).with_name("_forkserver.py")


class Limits(msgspec.Struct, frozen=True):
    """What one run may use."""

    seconds: float = 300.0
    memory: int = 1 << 30
    file: int = 256 << 20


class Python:
    """Runs code in forks of one clean process, which is started when it is first needed."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._sending = asyncio.Lock()

    async def run(self, code: str, args: dict[str, Any], limits: Limits) -> tuple[Any, str]:
        """The result of the code, and what it printed; NodeError says how it failed."""
        request = msgspec.json.encode({"code": code, "args": args, "limits": limits})
        reading = await self._ask(request)
        data = b""
        try:
            # A little later than the child's own alarm, which is the one that should ring.
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.seconds + 5):
                    data = await _answer(reading)
        finally:
            reading.close()
        if not data:
            raise NodeError(
                _ended(limits), "CODE_KILLED", {"seconds": limits.seconds, "memory": limits.memory}
            )
        answer = msgspec.json.decode(data)
        if "error" in answer:
            error = answer["error"]
            at = f" (line {error['line']})" if error["line"] else ""
            raise NodeError(
                f"{error['exception']}: {error['message']}{at}",
                "CODE_RAISED",
                {**error, "printed": answer["printed"][-2000:]},
            )
        return answer["result"], answer["printed"]

    async def _ask(self, request: bytes) -> Pipe:
        """Hand a request to the server; where the answer comes."""
        async with self._sending:
            try:
                return await _send(self._started(), request)
            except ConnectionError:
                # The server has just died: what it was not handed as a whole it has not run.
                await self.close()
                return await _send(self._started(), request)

    def _started(self) -> socket.socket:
        if self._channel is None or self._server is None or self._server.poll() is not None:
            _hide()
            self._hang_up()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            self._server = subprocess.Popen(
                [sys.executable, "-I", str(_SERVER)],
                stdin=theirs.fileno(),
                env={"PATH": os.defpath},
                close_fds=True,
            )
            theirs.close()
            self._channel = ours
        return self._channel

    def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    async def close(self) -> None:
        """End the server, and with it what still runs."""
        self._hang_up()
        if self._server is not None:
            await asyncio.to_thread(self._server.wait)


async def _send(channel: socket.socket, request: bytes) -> Pipe:
    """Send a request with the writing end of a pipe."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    try:
        head = len(request).to_bytes(8, "big")
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing]))]
        while True:
            try:
                channel.sendmsg([head], ancillary)
                break
            except BlockingIOError:
                await _writable(channel)
        await loop.sock_sendall(channel, request)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return Pipe(reading)


async def _writable(channel: socket.socket) -> None:
    """Wait until there is room: the server is behind."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(channel, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(channel)


class Pipe:
    """The reading end of an answer; closing it before the end ends the process that writes it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pid = 0

    def close(self) -> None:
        """Stop listening."""
        os.close(self.descriptor)
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


async def _answer(pipe: Pipe) -> bytes:
    """The line that the process writes; nothing, if it ends before that."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    data = bytearray()
    loop.add_reader(pipe.descriptor, readable.set)
    try:
        while True:
            try:
                part = os.read(pipe.descriptor, 1 << 16)
            except BlockingIOError:
                readable.clear()
                await readable.wait()
                continue
            if not part:
                data.clear()
                break
            data += part
            if not pipe.pid and b"\n" in data:
                head, _, rest = bytes(data).partition(b"\n")
                pipe.pid, data = int(head), bytearray(rest)
            # Others may have the pipe open still: what the code has started.
            if pipe.pid and b"\n" in data[-len(part) :]:
                break
    finally:
        loop.remove_reader(pipe.descriptor)
    pipe.pid = 0
    return bytes(data).partition(b"\n")[0]


def _hide() -> None:
    """Let no process of the same user read this one's memory and environment, where the secrets are."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def _ended(limits: Limits) -> str:
    return (
        f"the code was ended before it gave a result: it may take {limits.seconds:g} s "
        f"and {limits.memory >> 20} MB"
    )
