"""What an execution ended with: the small values at once, the large ones one after another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec
from msgspec import Raw

from rune.core.context import Ref
from rune.history.executions import Execution
from rune.master.answering import iso
from rune.master.service import Master

__all__ = ["find_value", "read_value", "streamed_result", "whole_result"]

_decode_values = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_GONE = b"null"
"""In place of a value that was lost before it could be kept."""


async def whole_result(master: Master, execution: Execution) -> Raw:
    """The result as one JSON value."""
    if not execution.result_refs:
        return execution.result or Raw(b"null")
    return Raw(b"".join([part async for part in _object(master, execution)]))


async def streamed_result(master: Master, execution: Execution) -> AsyncIterator[bytes]:
    """The result with how the execution ended, piece by piece; no more than one large value in memory."""
    head = {
        "id": execution.id,
        "status": execution.status,
        "ended_at": iso(execution.ended_at),
        "error": execution.error,
        "reason": execution.reason,
    }
    yield _encode(head)[:-1] + b',"result":'
    async for part in _object(master, execution):
        yield part
    yield b"}"


async def _object(master: Master, execution: Execution) -> AsyncIterator[bytes]:
    separator = b"{"
    for name, value in (await _values(master, execution)).items():
        data = await read_value(master, execution.id, value.hash) if isinstance(value, Ref) else value
        yield separator + _encode(name) + b":"
        yield bytes(data)
        separator = b","
    yield b"{}" if separator == b"{" else b"}"


async def _values(master: Master, execution: Execution) -> Mapping[str, Raw | Ref]:
    """The values by name; those that are stored by themselves are only named."""
    found: dict[str, Raw | Ref] = {}
    for ref in execution.result_refs:
        if ref.key:
            found[ref.key] = ref
        else:
            data = await read_value(master, execution.id, ref.hash)
            found |= _decode_values(data) if data != _GONE else {}
    if execution.result is not None:
        found |= _decode_values(execution.result)
    return found


async def read_value(master: Master, execution: str, hash: str) -> bytes:
    """A value by its hash; null if it is lost."""
    data = await find_value(master, execution, hash)
    return _GONE if data is None else data


async def find_value(master: Master, execution: str, hash: str) -> bytes | None:
    """A value by its hash, from the history or, for a while, from State."""
    data = await master.history.values.get(execution, hash)
    if data is None:
        data = (await master.runtime.values(execution, [hash])).get(hash)
    return data
