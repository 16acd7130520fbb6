"""AMQP 0-9-1 as bytes: frames, methods, field tables and message headers, as far as Rune needs them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any

__all__ = [
    "BODY",
    "HEAD",
    "HEADER",
    "HEARTBEAT",
    "METHOD",
    "PROTOCOL",
    "Method",
    "decode",
    "decode_delivery",
    "decode_properties",
    "encode",
    "encode_content",
    "frame",
]

PROTOCOL = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY = 1, 2, 3
HEAD = struct.Struct(">BHL")
"""How a frame begins: its kind, its channel, and the size of what follows; one byte more ends it."""
_END = b"\xce"
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00" + _END


class Method(IntEnum):
    """A method's class and number."""

    CONNECTION_START = 10 << 16 | 10
    CONNECTION_START_OK = 10 << 16 | 11
    CONNECTION_TUNE = 10 << 16 | 30
    CONNECTION_TUNE_OK = 10 << 16 | 31
    CONNECTION_OPEN = 10 << 16 | 40
    CONNECTION_OPEN_OK = 10 << 16 | 41
    CONNECTION_CLOSE = 10 << 16 | 50
    CONNECTION_CLOSE_OK = 10 << 16 | 51
    CONNECTION_BLOCKED = 10 << 16 | 60
    CONNECTION_UNBLOCKED = 10 << 16 | 61
    CHANNEL_OPEN = 20 << 16 | 10
    CHANNEL_OPEN_OK = 20 << 16 | 11
    CHANNEL_CLOSE = 20 << 16 | 40
    CHANNEL_CLOSE_OK = 20 << 16 | 41
    EXCHANGE_DECLARE = 40 << 16 | 10
    EXCHANGE_DECLARE_OK = 40 << 16 | 11
    QUEUE_DECLARE = 50 << 16 | 10
    QUEUE_DECLARE_OK = 50 << 16 | 11
    QUEUE_BIND = 50 << 16 | 20
    QUEUE_BIND_OK = 50 << 16 | 21
    BASIC_QOS = 60 << 16 | 10
    BASIC_QOS_OK = 60 << 16 | 11
    BASIC_CONSUME = 60 << 16 | 20
    BASIC_CONSUME_OK = 60 << 16 | 21
    BASIC_CANCEL = 60 << 16 | 30
    BASIC_CANCEL_OK = 60 << 16 | 31
    BASIC_PUBLISH = 60 << 16 | 40
    BASIC_RETURN = 60 << 16 | 50
    BASIC_DELIVER = 60 << 16 | 60
    BASIC_GET = 60 << 16 | 70
    BASIC_GET_OK = 60 << 16 | 71
    BASIC_GET_EMPTY = 60 << 16 | 72
    BASIC_ACK = 60 << 16 | 80
    BASIC_NACK = 60 << 16 | 120
    CONFIRM_SELECT = 85 << 16 | 10
    CONFIRM_SELECT_OK = 85 << 16 | 11


_ARGUMENTS = {
    # B, H, L, Q: unsigned of 1, 2, 4, 8 bytes (bits travel as B); s, S: short and long text; T: a table.
    Method.CONNECTION_START: "BBTSS",
    Method.CONNECTION_START_OK: "TsSs",
    Method.CONNECTION_TUNE: "HLH",
    Method.CONNECTION_TUNE_OK: "HLH",
    Method.CONNECTION_OPEN: "ssB",
    Method.CONNECTION_CLOSE: "HsHH",
    Method.CONNECTION_BLOCKED: "s",
    Method.CHANNEL_OPEN: "s",
    Method.CHANNEL_CLOSE: "HsHH",
    Method.EXCHANGE_DECLARE: "HssBT",
    Method.QUEUE_DECLARE: "HsBT",
    Method.QUEUE_DECLARE_OK: "sLL",
    Method.QUEUE_BIND: "HsssBT",
    Method.BASIC_QOS: "LHB",
    Method.BASIC_CONSUME: "HssBT",
    Method.BASIC_CONSUME_OK: "s",
    Method.BASIC_CANCEL: "sB",
    Method.BASIC_CANCEL_OK: "s",
    Method.BASIC_PUBLISH: "HssB",
    Method.BASIC_RETURN: "Hsss",
    Method.BASIC_DELIVER: "sQBss",
    Method.BASIC_GET: "HsB",
    Method.BASIC_GET_OK: "QBssL",
    Method.BASIC_GET_EMPTY: "s",
    Method.BASIC_ACK: "QB",
    Method.BASIC_NACK: "QB",
    Method.CONFIRM_SELECT: "B",
}
_NUMBERS = {kind: struct.Struct(f">{kind}") for kind in "BHLQ"}


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"%b%b%b" % (HEAD.pack(kind, channel, len(payload)), payload, _END)


# --- methods ------------------------------------------------------------------------------------------------


def encode(method: Method, *arguments: Any) -> bytes:
    """A method and its arguments."""
    parts = [method.to_bytes(4)]
    for kind, value in zip(_ARGUMENTS.get(method, ""), arguments, strict=True):
        if kind == "s":
            parts.append(_short(value))
        elif kind == "S":
            parts.append(_long(value))
        elif kind == "T":
            parts.append(_table(value))
        else:
            parts.append(_NUMBERS[kind].pack(value))
    return b"".join(parts)


def decode(method: int, payload: bytes) -> list[Any]:
    """The arguments of a method's payload."""
    values: list[Any] = []
    at = 4
    for kind in _ARGUMENTS.get(method, ""):  # type: ignore[call-overload]  # an int finds its member
        if kind == "s":
            value, at = _read_short(payload, at)
        elif kind in "ST":
            value, at = _READERS["S" if kind == "S" else "F"](payload, at)
        else:
            number = _NUMBERS[kind]
            (value,) = number.unpack_from(payload, at)
            at += number.size
        values.append(value)
    return values


# --- messages -----------------------------------------------------------------------------------------------

_CONTENT = struct.Struct(">HHQH")
_CONTENT_TYPE, _ENCODING, _HEADERS, _MODE, _PRIORITY = 1 << 15, 1 << 14, 1 << 13, 1 << 12, 1 << 11


@lru_cache(1000)
def _envelope(
    channel: int, exchange: str, key: str, mandatory: bool, persistent: bool, priority: int
) -> tuple[bytes, bytes]:
    """What stands before and after the size of a body without headers, up to the size of its only frame."""
    method = frame(METHOD, channel, encode(Method.BASIC_PUBLISH, 0, exchange, key, int(mandatory)))
    header = frame(HEADER, channel, _header(0, persistent, priority, None))
    size_at = len(method) + HEAD.size + 4
    whole = method + header + HEAD.pack(BODY, channel, 0)[:-4]
    return whole[:size_at], whole[size_at + 8 :]


def _header(size: int, persistent: bool, priority: int, headers: Mapping[str, Any] | None) -> bytes:
    flags = _CONTENT_TYPE | _MODE | _PRIORITY | (_HEADERS if headers else 0)
    table = _table(headers) if headers else b""
    mode = bytes((2 if persistent else 1, priority))
    return b"".join((_CONTENT.pack(60, 0, size, flags), _short("application/json"), table, mode))


def encode_content(
    channel: int,
    exchange: str,
    key: str,
    body: bytes,
    frame_max: int,
    *,
    priority: int = 0,
    headers: Mapping[str, Any] | None = None,
    persistent: bool = True,
    mandatory: bool = True,
) -> bytes:
    """The frames that publish a message of JSON."""
    size, most = len(body), frame_max - 8
    if not headers and 0 < size <= most:
        before, after = _envelope(channel, exchange, key, mandatory, persistent, priority)
        return b"".join((before, size.to_bytes(8), after, size.to_bytes(4), body, _END))
    return b"".join(
        (
            frame(METHOD, channel, encode(Method.BASIC_PUBLISH, 0, exchange, key, int(mandatory))),
            frame(HEADER, channel, _header(size, persistent, priority, headers)),
            *(frame(BODY, channel, body[at : at + most]) for at in range(0, size, most)),
        )
    )


_DELIVER = struct.Struct(">QB")


def decode_delivery(payload: bytes) -> tuple[str, int, bool, str]:
    """Of a delivery: the consumer, the tag, whether it is not the first, and the routing key."""
    at = 5 + payload[4]
    tag, redelivered = _DELIVER.unpack_from(payload, at)
    consumer, key = _names(payload[5:at], payload[at + 9 :])
    return consumer, tag, bool(redelivered), key


@lru_cache(1000)
def _names(consumer: bytes, rest: bytes) -> tuple[str, str]:
    _, at = _read_short(rest, 0)
    return consumer.decode(), _read_short(rest, at)[0]


def decode_properties(payload: bytes) -> tuple[int, int, dict[str, Any]]:
    """Of a message's header frame: the size of the body, the priority, the headers."""
    _, _, size, flags = _CONTENT.unpack_from(payload)
    at = _CONTENT.size
    headers: dict[str, Any] = {}
    if flags & _CONTENT_TYPE:
        at += 1 + payload[at]
    if flags & _ENCODING:
        at += 1 + payload[at]
    if flags & _HEADERS:
        headers, at = _READERS["F"](payload, at)
    if flags & _MODE:
        at += 1
    return size, payload[at] if flags & _PRIORITY else 0, headers


# --- tables -------------------------------------------------------------------------------------------------


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _long(data: str | bytes) -> bytes:
    if isinstance(data, str):
        data = data.encode()
    return len(data).to_bytes(4) + data


def _table(table: Mapping[str, Any]) -> bytes:
    return _long(b"".join(_short(name) + _value(value) for name, value in table.items()))


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return b"l" + value.to_bytes(8, signed=True)
        case Mapping():
            return b"F" + _table(value)
        case _:
            return b"S" + _long(value)


def _read_short(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(errors="replace"), end


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + int.from_bytes(data[at:start])
    return data[start:end], end


def _read_long(data: bytes, at: int) -> tuple[str, int]:
    text, end = _read_bytes(data, at)
    return text.decode(errors="replace"), end


def _read_table(data: bytes, at: int) -> tuple[dict[str, Any], int]:
    table = {}
    end = at + 4 + int.from_bytes(data[at : at + 4])
    at += 4
    while at < end:
        name, at = _read_short(data, at)
        table[name], at = _READERS[chr(data[at])](data, at + 1)
    return table, end


def _read_array(data: bytes, at: int) -> tuple[list[Any], int]:
    array = []
    end = at + 4 + int.from_bytes(data[at : at + 4])
    at += 4
    while at < end:
        value, at = _READERS[chr(data[at])](data, at + 1)
        array.append(value)
    return array, end


def _number(format: str) -> Callable[[bytes, int], tuple[Any, int]]:
    number = struct.Struct(f">{format}")
    return lambda data, at: (number.unpack_from(data, at)[0], at + number.size)


_READERS: dict[str, Callable[[bytes, int], tuple[Any, int]]] = {
    **{tag: _number(format) for tag, format in zip("tbBsuIilfdT", "?bBhHiIqfdQ", strict=True)},
    "D": lambda data, at: (int.from_bytes(data[at + 1 : at + 5], signed=True) / 10 ** data[at], at + 5),
    "S": _read_long,
    "x": _read_bytes,
    "A": _read_array,
    "F": _read_table,
    "V": lambda data, at: (None, at),
}
"""How each kind of field is read."""
