"""A small web server for tests, on a free port of this machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple


class Seen(NamedTuple):
    """A request as it came in."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


class Answer(NamedTuple):
    """What to answer."""

    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Route = Callable[[Seen], Awaitable[Answer]]


class Web:
    """Routes by path, every request it has seen, and how many connections carried them."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.routes: dict[str, Route] = {}
        self.url = ""
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, path: str, *answers: Answer) -> None:
        """Answer requests to this path one by one; the last answer stands."""
        left = list(answers)

        async def route(seen: Seen) -> Answer:
            return left.pop(0) if len(left) > 1 else left[0]

        self.routes[path] = route

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (seen := await _read(reader, number)) is not None:
                self.seen.append(seen)
                answer = await self.routes[seen.target.partition("?")[0]](seen)
                writer.write(_written(answer, seen.method))
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()


async def _read(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(method, target, headers, body, connection)


def _written(answer: Answer, method: str) -> bytes:
    fields = [*answer.headers, ("Content-Length", str(len(answer.body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    body = b"" if method == "HEAD" else answer.body
    return f"HTTP/1.1 {answer.status}\r\n{head}\r\n".encode("latin-1") + body
