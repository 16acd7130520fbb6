"""Results that are kept: large ones by reference, many in parts, and the values where they are read."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.errors import NodeError
from rune.core.expressions import kind_of
from rune.core.json import as_json
from rune.core.node import StepContext
from rune.core.playbook.references import (
    LARGE,
    MANY,
    is_loop_result,
    is_manifest,
    is_result_ref,
    manifest,
    part,
    poses,
    result_ref,
    starts_as_reference,
)

__all__ = ["Results", "kept", "loaded", "part_of"]

_PART, _PART_COUNT = 256 * 1024, 10_000
"""Bytes and results that one part of a manifest has at most."""
_SHOWN = 10
"""Results of which a manifest may show something."""

_list_decoder = msgspec.json.Decoder(list[Raw])
_decode = msgspec.json.Decoder().decode


async def kept(context: StepContext, value: Any) -> Raw:
    """The JSON of a result, or of what stands for one that is large, or looks as if it stood for another."""
    raw = as_json(value)
    if len(memoryview(raw)) <= LARGE and not poses(value):
        return raw
    before = bytes(raw)
    reference, data = await context.keep(before)
    # What is shown is what was stored: no more of a secret than that.
    return as_json(result_ref(reference, data, value if data == before else _decode(data)), trusted=True)


class Results:
    """A list of results that grows: few and small ones are a list, others a manifest of stored parts."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._part: list[bytes] = []
        self._size = 0
        self._large = False
        self._parts: list[dict[str, Any]] = []
        self._head: list[Any] = []
        self.count = 0

    async def add(self, data: bytes) -> None:
        """Append a result, as JSON."""
        full = self._part and (self._size + len(data) > _PART or len(self._part) == _PART_COUNT)
        # Others may add while the part is stored: what comes first stands first.
        stored = self._store() if full else None
        self._part.append(data)
        self._size += len(data) + 1
        self.count += 1
        # What is referred to would be too large for a list.
        self._large = self._large or starts_as_reference(data)
        if stored is not None:
            await stored

    async def whole(self) -> Any:
        """The list as JSON, or its manifest."""
        small = not self._large and not self._parts and self.count <= MANY and self._size <= LARGE
        if small:
            return Raw(b"[" + b",".join(self._part) + b"]")
        if self._part:
            await self._store()
        return manifest(self._parts, self._head)

    def _store(self) -> Awaitable[None]:
        """Begin another part, and store this one."""
        some, number, at = self._part, len(self._parts), self.count - len(self._part)
        self._part, self._size = [], 0
        self._parts.append({})
        return self._stored(some, number, at)

    async def _stored(self, some: list[bytes], number: int, at: int) -> None:
        reference, data = await self._context.keep(b"[" + b",".join(some) + b"]")
        if not number:
            self._head = [_decode(raw) for raw in _list_decoder.decode(data)[:_SHOWN]]
        self._parts[number] = part(reference, data, at, len(some))


async def part_of(context: StepContext, part: dict[str, Any]) -> list[Any]:
    """The results in one part of a manifest, themselves."""
    found = await context.load(part["ref"])
    if not isinstance(found, list):
        raise NodeError(f"what is kept is {kind_of(found)}, not a list", "REFERENCE_INVALID")
    if not any(is_result_ref(value) for value in found):
        return found
    return [await context.load(value["ref"]) if is_result_ref(value) else value for value in found]


async def loaded(context: StepContext, value: Any) -> Any:
    """A result itself, where it or a part of it is a reference; it is shared, and not to be changed."""
    if is_result_ref(value):
        return await context.load(value["ref"])
    if is_manifest(value):
        return [result for part in value["parts"] for result in await part_of(context, part)]
    if not is_loop_result(value):
        return value
    whole = await _loaded_within(context, value)
    if isinstance(shared := whole.get("shared"), dict):
        within = await _loaded_within(context, shared)
        return whole if within is shared else {**whole, "shared": within}
    return whole


async def _loaded_within(context: StepContext, value: dict[str, Any]) -> dict[str, Any]:
    referring = [key for key, inner in value.items() if is_result_ref(inner) or is_manifest(inner)]
    return {**value, **{key: await loaded(context, value[key]) for key in referring}} if referring else value
