"""The fan-in of a loop: what the shards left, read page by page and never held as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rune.core.messages import Frame
from rune.core.node import Gathered, StepContext
from rune.core.playbook.identity import identity_of
from rune.core.playbook.program import Reducer
from rune.core.playbook.references import MANY, is_sink, starts_as_reference
from rune.nodes._results import Results
from rune.nodes.playbook.shared import Shared

__all__ = ["ELEMENTS", "Elements", "FanIn", "Left", "left"]

ELEMENTS = "shard_elements"
"""The detail of a shard's error that says which elements it had."""


class Elements(Struct, omit_defaults=True):
    """Which elements a shard has, where it may have several."""

    at: int
    """The index of the first."""
    count: int
    of: int
    """How many the whole loop has."""


class Left(Struct, omit_defaults=True):
    """What a shard leaves in its slot, or the error it failed with."""

    results: list[Raw] = []
    """What each of its elements gave."""
    kept: dict[str, Any] | None = None
    """Where they are, if they are large together."""
    shared: list[Raw] = []
    """What each wrote for all, as objects."""
    key: str = ""
    elements: Elements | None = None
    """Those it had; None where it had the one of its own index."""
    error: dict[str, Any] | None = None

    @property
    def place(self) -> Elements | None:
        """The same, also of one that failed, if it came to say so."""
        said = ((self.error or {}).get("details") or {}).get(ELEMENTS)
        return self.elements if said is None else msgspec.convert(said, Elements)


_decoder = msgspec.json.Decoder(Left)
_list_decoder = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


def left(output: Raw, frame: Frame | None) -> Raw:
    """What a shard gave as its slot holds it: it knows its key."""
    if frame is None or not frame.key:
        return output
    return Raw(_encode(msgspec.structs.replace(_decoder.decode(output), key=frame.key)))


class FanIn:
    """Takes the shards' slots in order: their results, what they share, and the first error."""

    def __init__(self, context: StepContext, reducers: Mapping[str, Reducer], *, naming: bool) -> None:
        self.first_error: dict[str, Any] = {}
        self.shared = Shared(context, reducers)
        self._context = context
        self._naming = naming
        self._many = False
        self._elements = 0
        """How many there are, once a shard that has several has said so."""
        self._results = Results(context)
        self._reducers = reducers
        self._refs: list[dict[str, Any]] = []

    async def read(self, gathered: Gathered) -> None:
        """Take everything; what a shard that did not say so had is known by the one behind it."""
        assert gathered.pages is not None
        self._many = gathered.total > MANY
        following = 0
        async for page in gathered.pages():
            for index, data in page:
                following = index + 1
                await self._take(index, _decoder.decode(data))
        if gathered.failed_as is None:
            await self._fill(self._elements or gathered.total)
        elif not self._elements:
            await self._fill(following)

    async def _take(self, index: int, slot: Left) -> None:
        place = slot.place
        if place is not None:
            self._elements = place.of
        if slot.error is not None:
            self.first_error = self.first_error or slot.error
            if place is not None:
                await self._fill(place.at + place.count)
            return
        await self._fill(index if place is None else place.at)
        data = b""
        if slot.kept is not None:
            data = await self._context.fetch(slot.kept["ref"])
        given = _list_decoder.decode(data) if data else slot.results
        for result in given:
            await self._results.add(bytes(result))
        for shared in slot.shared:
            await self.shared.add(msgspec.json.decode(shared))
        if self._naming and not self._many:
            self._refs.append(await self._reference(index, slot))

    async def _fill(self, count: int) -> None:
        """Let there be so many results: elements that gave nothing gave null."""
        while self._results.count < count:
            await self._results.add(b"null")

    async def result(self) -> bytes:
        """The result of the loop, as JSON."""
        whole = {"results": await self._results.whole(), "count": self._results.count}
        if self._reducers:
            whole["shared"] = await self.shared.whole()
        return _encode(whole)

    async def refs(self) -> Any:
        """A reference for each shard that succeeded; where they are many, the manifest of their results."""
        return await self._results.whole() if self._naming and self._many else self._refs

    async def _reference(self, index: int, slot: Left) -> dict[str, Any]:
        known = identity_of(self._context.barrier, index, slot.key)
        del known["loop_id"]
        if slot.kept is not None:
            return {"kind": "result_ref", "ref": slot.kept["ref"], **known}
        data = _encode(slot.results) if slot.elements else bytes(slot.results[0])
        value = msgspec.json.decode(data)
        if starts_as_reference(data):
            return {"kind": "result_ref", "ref": value["ref"], **known, "result": value}
        reference, _ = await self._context.keep(data)
        passed = {"result": value} if is_sink(value) else {}
        return {"kind": "result_ref", "ref": reference, **known, **passed}
