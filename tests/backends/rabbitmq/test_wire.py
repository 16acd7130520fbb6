"""AMQP as bytes: what goes out comes in again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.backends.rabbitmq.address import parse_url
from rune.backends.rabbitmq.channel import AmqpError, Channel, Message, Received
from rune.backends.rabbitmq.connection import Connection
from rune.backends.rabbitmq.wire import BODY, HEAD, HEADER, METHOD, Method, decode, encode, frame
from rune.core.errors import InfrastructureError

names = st.text(max_size=60)
numbers = st.integers(-(2**63), 2**63 - 1)
tables: st.SearchStrategy[Any] = st.recursive(
    st.dictionaries(names, st.booleans() | numbers | names, max_size=4),
    lambda inner: st.dictionaries(names, inner, max_size=3),
)


class Loop:
    """A wire that leads back to the channel that writes on it."""

    def __init__(self, frame_max: int = 131_072) -> None:
        self.frame_max = frame_max
        self.writable = True
        self.written = b""

    def send(self, data: bytes) -> None:
        self.written += data

    def forget(self, number: int) -> None:
        pass

    def frames(self) -> list[tuple[int, bytes]]:
        frames, at = [], 0
        while at < len(self.written):
            kind, _, size = HEAD.unpack_from(self.written, at)
            frames.append((kind, self.written[at + 7 : at + 7 + size]))
            assert self.written[at + 7 + size] == 0xCE
            at += 8 + size
        return frames


@given(tables, names, names)
def test_methods_come_as_they_went(table: dict[str, Any], queue: str, tag: str) -> None:
    data = encode(Method.BASIC_CONSUME, 7, queue, tag, 3, table)
    assert decode(Method.BASIC_CONSUME, data) == [7, queue, tag, 3, table]


def test_tables_of_other_clients_are_read() -> None:
    fields = {
        b"t\x01": True,
        b"b\xff": -1,
        b"B\xff": 255,
        b"s\xff\xfe": -2,
        b"u\xff\xff": 65535,
        b"I\xff\xff\xff\xff": -1,
        b"i\x00\x00\x00\x07": 7,
        b"l\x00\x00\x00\x00\x00\x00\x00\x08": 8,
        b"f?\x80\x00\x00": 1.0,
        b"d?\xf0\x00\x00\x00\x00\x00\x00": 1.0,
        b"D\x02\x00\x00\x00\xfa": 2.5,
        b"S\x00\x00\x00\x02hi": "hi",
        b"x\x00\x00\x00\x01\x00": b"\x00",
        b"A\x00\x00\x00\x04t\x00t\x01": [False, True],
        b"T\x00\x00\x00\x00\x00\x00\x00\x09": 9,
        b"F\x00\x00\x00\x00": {},
        b"V": None,
    }
    table = b"".join(b"\x01%c%b" % (i, field) for i, field in enumerate(fields))
    read = decode(Method.BASIC_CONSUME, b"\0" * 9 + len(table).to_bytes(4) + table)[-1]
    assert list(read.values()) == list(fields.values())


@given(st.binary(max_size=300), st.integers(0, 10), tables, st.integers(9, 200))
async def test_messages_come_as_they_went(
    body: bytes, priority: int, headers: dict[str, Any], frame_max: int
) -> None:
    wire = Loop(frame_max)
    sender, receiver = Channel(wire, 1), Channel(wire, 1)
    got: list[Received] = []
    receiver.on_message = got.append
    sender.publish(Message("exchange", "key", body, priority, headers))
    (kind, method), (_, header), *bodies = wire.frames()
    assert kind == METHOD
    assert decode(Method.BASIC_PUBLISH, method) == [0, "exchange", "key", 1]
    assert all(len(body) + 8 <= frame_max for _, body in bodies)
    receiver.receive(METHOD, encode(Method.BASIC_DELIVER, "queue", 5, 1, "exchange", "key"))
    receiver.receive(HEADER, header)
    for _, part in bodies:
        receiver.receive(BODY, part)
    (message,) = got
    assert (message.body, message.priority, message.headers) == (body, priority, headers)
    assert (message.source, message.tag, message.redelivered, message.key) == ("queue", 5, True, "key")


class Silent(asyncio.Transport):
    """A transport into the void."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        pass


@given(st.lists(st.integers(1, 60), max_size=30))
async def test_frames_may_arrive_in_any_pieces(cuts: list[int]) -> None:
    connection = Connection()
    connection.connection_made(Silent())
    opening = asyncio.ensure_future(connection.channel())
    await asyncio.sleep(0)
    data = frame(METHOD, 1, b"\x00\x14\x00\x0b\x00\x00\x00\x00")
    data += frame(METHOD, 0, encode(Method.CONNECTION_BLOCKED, "low on memory"))
    data += frame(METHOD, 1, encode(Method.CHANNEL_CLOSE, 404, "NOT_FOUND", 0, 0))
    for size in cuts:
        connection.data_received(data[:size])
        data = data[size:]
    connection.data_received(data)
    channel = await opening
    assert connection.blocked == "low on memory"
    assert not connection.writable
    assert channel.closed.result().code == 404
    with pytest.raises(AmqpError, match="NOT_FOUND"):
        await channel.call(Method.CONFIRM_SELECT, 0)


async def test_what_is_sent_in_one_turn_leaves_in_one_write() -> None:
    connection, transport = Connection(), Silent()
    connection.connection_made(transport)
    for _ in range(100):
        connection.send(b"x")
    await asyncio.sleep(0)
    assert transport.writes == [b"x" * 100]


def test_addresses() -> None:
    address = parse_url("amqps://me:p%40ss@example.org/v%2fh?heartbeat=5")
    assert (address.host, address.port, address.user, address.password) == ("example.org", 5671, "me", "p@ss")
    assert (address.vhost, address.tls, address.heartbeat) == ("v/h", True, 5)
    assert "p@ss" not in str(address)
    assert parse_url("amqp://localhost").vhost == "/"
    assert parse_url("amqp://localhost/").port == 5672


@pytest.mark.parametrize(
    "url",
    [
        *(
            "redis://x",
            "amqp://",
            "localhost:5672",
            "amqp://x:y",
            "amqp://x?color=red",
            "amqp://[::1",
            "amqp://a..b",
        ),
        *("amqp://x?heartbeat=z", "amqp://x?heartbeat=-1", "amqp://x?heartbeat=99999"),
        *("amqp://me:hush/hush@x", "amqp://me:hush#hush@x", "amqp://me:hush?hush@x"),
    ],
)
def test_a_url_that_is_wrong_is_told_and_not_shown(url: str) -> None:
    with pytest.raises(InfrastructureError, match="the broker's URL") as told:
        parse_url(url)
    assert "hush" not in str(told.value)
