"""The fan-in of a loop: what the shards left, read page by page and never held as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rune.core.messages import Frame
from rune.core.node import Gathered, StepContext
from rune.core.playbook.program import Reducer
from rune.core.playbook.references import MANY, is_result_ref, is_sink, starts_as_reference
from rune.nodes._results import Results
from rune.nodes.playbook.shared import Shared

__all__ = ["FanIn", "Left", "identity_of", "left"]


class Left(Struct, omit_defaults=True):
    """What a shard leaves in its slot, or the error it failed with."""

    results: list[Raw] = []
    """What each of its elements gave."""
    kept: dict[str, Any] | None = None
    """Where they are, if they are large together."""
    shared: list[Raw] = []
    """What each wrote for all, as objects."""
    key: str = ""
    chunk: bool = False
    """It had several elements."""
    error: dict[str, Any] | None = None

    @property
    def lost(self) -> int:
        """The elements of one that failed."""
        details = (self.error or {}).get("details") or {}
        return int(details.get("elements", 1))


_decoder = msgspec.json.Decoder(Left)
_list_decoder = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


def left(output: Raw, frame: Frame | None) -> Raw:
    """What a shard gave as its slot holds it: it knows its key."""
    if frame is None or not frame.key:
        return output
    return Raw(_encode(msgspec.structs.replace(_decoder.decode(output), key=frame.key)))


def identity_of(barrier: str, index: int, key: str) -> dict[str, Any]:
    """What a shard is, whenever it is run: what it writes is keyed by it."""
    return {
        "loop_id": barrier,
        "shard_id": f"{barrier}.{index}",
        "iter_index": index,
        "iter_key": key or str(index),
    }


class FanIn:
    """Takes the shards' slots in order: their results, what they share, and the first error."""

    def __init__(self, context: StepContext, reducers: Mapping[str, Reducer], *, naming: bool) -> None:
        self.first_error: dict[str, Any] = {}
        self.shared = Shared(context, reducers)
        self._context = context
        self._naming = naming
        self._many = False
        self._results = Results(context)
        self._reducers = reducers
        self._named: list[tuple[int, str, bytes]] = []

    async def read(self, gathered: Gathered) -> None:
        """Take everything."""
        assert gathered.pages is not None
        self._many = gathered.total > MANY
        following = 0
        async for page in gathered.pages():
            for index, data in page:
                await self._miss(index - following)
                following = index + 1
                await self._take(index, _decoder.decode(data))
        if gathered.failed_as is None:
            await self._miss(gathered.total - following)

    async def _take(self, index: int, slot: Left) -> None:
        if slot.error is not None:
            self.first_error = self.first_error or slot.error
            await self._miss(slot.lost)
            return
        data = b""
        if slot.kept is not None:
            data = await self._context.fetch(slot.kept["ref"])
        given = _list_decoder.decode(data) if data else slot.results
        for result in given:
            await self._results.add(bytes(result))
        for shared in slot.shared:
            await self.shared.add(msgspec.json.decode(shared))
        if self._naming and not self._many:
            one = _encode(given) if slot.chunk else bytes(given[0])
            self._named.append((index, slot.key, one))

    async def _miss(self, count: int) -> None:
        """Elements that gave nothing."""
        for _ in range(count):
            await self._results.add(b"null")

    async def result(self) -> bytes:
        """The result of the loop, as JSON."""
        whole = {"results": await self._results.whole(), "count": self._results.count}
        if self._reducers:
            whole["shared"] = await self.shared.whole()
        return _encode(whole)

    async def refs(self) -> Any:
        """A reference for each shard that succeeded; where they are many, the manifest of their results."""
        if self._naming and self._many:
            return await self._results.whole()
        named = [self._reference(index, key, data) for index, key, data in self._named]
        return await asyncio.gather(*named)

    async def _reference(self, index: int, key: str, data: bytes) -> dict[str, Any]:
        known = identity_of(self._context.barrier, index, key)
        del known["loop_id"]
        value = msgspec.json.decode(data)
        if starts_as_reference(data):
            return {"kind": "result_ref", "ref": value["ref"], **known, "result": value}
        reference, _ = await self._context.keep(data)
        passed = {"result": value} if is_sink(value) or is_result_ref(value) else {}
        return {"kind": "result_ref", "ref": reference, **known, **passed}
