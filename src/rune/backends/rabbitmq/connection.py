"""One AMQP connection over asyncio: many small writes leave as one."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

from rune.backends.rabbitmq.address import Address
from rune.backends.rabbitmq.channel import AmqpError, Channel
from rune.backends.rabbitmq.wire import HEAD, HEARTBEAT, METHOD, PROTOCOL, Method, decode, encode, frame

__all__ = ["Connection", "connect"]

_FRAME_MAX = 131_072
_AT_ONCE = 262_144
"""Bytes that are written without waiting for more."""
_CONNECT_TIMEOUT = 15.0
_CLOSE_TIMEOUT = 3.0
_CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


async def connect(address: Address, name: str) -> Connection:
    """Connect and log in; AmqpError says why not."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            _, connection = await loop.create_connection(
                Connection, address.host, address.port, ssl=address.context
            )
            try:
                await connection.log_in(address, name)
            except BaseException:
                connection.abort()
                raise
    except (OSError, TimeoutError) as error:
        text = str(error) or "no answer"
        raise AmqpError(f"RabbitMQ cannot be reached at {address}: {text}") from error
    except AmqpError as error:
        raise AmqpError(f"RabbitMQ at {address} refuses us: {error}", error.code) from error
    return connection


class Connection(asyncio.Protocol):
    """A connection; it is of no more use once `closed` is done."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._rest = b""
        self._out: list[bytes] = []
        self._out_size = 0
        self._channels: dict[int, Channel] = {}
        self._control: asyncio.Queue[tuple[int, list[Any]]] = asyncio.Queue()
        self._paused = False
        self._heard = self._spoke = True
        self._silences = 0
        self._pulse: asyncio.TimerHandle | None = None
        self.blocked = ""
        """Why the broker wants no messages now."""
        self.frame_max = _FRAME_MAX
        self.closed: asyncio.Future[AmqpError] = self._loop.create_future()

    # --- logging in and out ---

    async def log_in(self, address: Address, name: str) -> None:
        """Shake hands."""
        self._write(PROTOCOL)
        await self._answer(Method.CONNECTION_START)
        properties = {"product": "Rune", "connection_name": name, "capabilities": _CAPABILITIES}
        secret = f"\0{address.user}\0{address.password}"
        self._send_control(Method.CONNECTION_START_OK, properties, "PLAIN", secret, "en_US")
        channel_max, frame_max, heartbeat = await self._answer(Method.CONNECTION_TUNE)
        self.frame_max = min(frame_max or _FRAME_MAX, _FRAME_MAX)
        heartbeat = min(heartbeat or address.heartbeat, address.heartbeat)
        self._send_control(Method.CONNECTION_TUNE_OK, channel_max, self.frame_max, heartbeat)
        self._send_control(Method.CONNECTION_OPEN, address.vhost, "", 0)
        await self._answer(Method.CONNECTION_OPEN_OK)
        if heartbeat:
            self._beat(heartbeat / 2)

    async def _answer(self, method: Method) -> list[Any]:
        got, arguments = await self._control.get()
        if self.closed.done():
            raise self.closed.result()
        if got != method:
            raise AmqpError(f"unexpected answer {got:#x} instead of {method.name}")
        return arguments

    def _send_control(self, method: Method, *arguments: Any) -> None:
        self.send(frame(METHOD, 0, encode(method, *arguments)))

    async def channel(self) -> Channel:
        """Open a channel."""
        if self.closed.done():
            raise self.closed.result()
        number = next(n for n in itertools.count(1) if n not in self._channels)
        channel = self._channels[number] = Channel(self, number)
        await channel.call(Method.CHANNEL_OPEN, "")
        return channel

    def forget(self, number: int) -> None:
        """A channel is closed on both sides."""
        self._channels.pop(number, None)

    async def close(self) -> None:
        """Write what is left, and say good-bye."""
        if not self.closed.done():
            self._send_control(Method.CONNECTION_CLOSE, 200, "", 0, 0)
            # A broker that blocks us does not hear us, either.
            await asyncio.wait({self.closed}, timeout=0.2 if self.blocked else _CLOSE_TIMEOUT)
        self.abort()

    def abort(self) -> None:
        """Close without a word."""
        self._transport.abort()
        self._end(AmqpError("the connection was closed"))

    def _end(self, error: AmqpError) -> None:
        if self.closed.done():
            return
        self.closed.set_result(error)
        self._control.put_nowait((0, []))
        if self._pulse is not None:
            self._pulse.cancel()
        for channel in self._channels.values():
            channel.fail(error)

    # --- out ---

    @property
    def writable(self) -> bool:
        """Whether messages may be written now."""
        return not self._paused and not self.blocked

    def send(self, data: bytes) -> None:
        """Write, together with whatever else is sent in this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            self._write(b"".join(self._out))
            self._out.clear()
            self._out_size = 0

    def _write(self, data: bytes) -> None:
        if not self.closed.done():
            self._spoke = True
            self._transport.write(data)

    def _beat(self, seconds: float) -> None:
        """Say something every `seconds`, and give up a broker that was silent for four of them."""
        if not self._spoke:
            self._write(HEARTBEAT)
        self._silences = 0 if self._heard else self._silences + 1
        self._heard = self._spoke = False
        if self._silences >= 4:
            self._end(AmqpError("the broker has fallen silent"))
            self._transport.abort()
        else:
            self._pulse = self._loop.call_later(seconds, self._beat, seconds)

    def _wake(self) -> None:
        if self.writable:
            for channel in self._channels.values():
                channel.on_writable()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(AmqpError(f"the connection was lost{f': {error}' if error else ''}"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= 8:
            kind, number, size = HEAD.unpack_from(data, at)
            start = at + 7
            stop = start + size
            if stop >= end:
                break
            at = stop + 1
            channel = self._channels.get(number)
            if channel is not None:
                channel.receive(kind, data[start:stop])
            elif number == 0 and kind == METHOD:
                self._receive_control(data[start:stop])
        self._rest = data[at:]

    def _receive_control(self, payload: bytes) -> None:
        method = int.from_bytes(payload[:4])
        match method:
            case Method.CONNECTION_CLOSE:
                code, text, _, _ = decode(method, payload)
                self._send_control(Method.CONNECTION_CLOSE_OK)
                self._flush()
                self._end(AmqpError(text, code))
                self._transport.close()
            case Method.CONNECTION_CLOSE_OK:
                self._end(AmqpError("the connection was closed"))
            case Method.CONNECTION_BLOCKED:
                (reason,) = decode(method, payload)
                self.blocked = reason or "blocked"
            case Method.CONNECTION_UNBLOCKED:
                self.blocked = ""
                self._wake()
            case _:
                self._control.put_nowait((method, decode(method, payload)))
