"""Large values: stored once by their hash, fetched when something reads them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from rune.core.context import Context, Layer, Ref, weight
from rune.core.errors import EngineError, ValueMissing
from rune.core.ids import content_hash
from rune.core.messages import Branch
from rune.core.ports import State
from rune.core.workflow import Edge

__all__ = ["FAN_OUT_INLINE", "INLINE", "LARGE", "Values", "expand", "stored_sets"]

LARGE = 64 * 1024
"""A single value over this is stored by itself."""
INLINE = 16 * 1024
"""Values that travel in a message together weigh at most this; more become one stored layer."""
FAN_OUT_INLINE = 1024
"""The same for what every item of a fan-out would carry along."""

_layer_decoder = msgspec.json.Decoder(dict[str, Raw])


class Values:
    """Stores what is too large to travel, and remembers what was read lately."""

    def __init__(
        self, state: State, *, cache_bytes: int = 64 * 1024 * 1024, max_value: int = 64 * 1024 * 1024
    ) -> None:
        self._state = state
        self._room = cache_bytes
        self._max_value = max_value
        self._layers: OrderedDict[tuple[str, str], tuple[Layer, int]] = OrderedDict()
        self._weight = 0

    # --- reading ---

    async def load(self, execution: str, refs: Iterable[Ref]) -> dict[Ref, Layer]:
        """The layers behind these references."""
        found: dict[Ref, Layer] = {}
        missing: list[Ref] = []
        for ref in refs:
            known = self._layers.get((ref.hash, ref.key))
            if known is None:
                missing.append(ref)
            else:
                self._layers.move_to_end((ref.hash, ref.key))
                found[ref] = known[0]
        if missing:
            data = await self._state.get(execution, list({ref.hash for ref in missing}))
            for ref in missing:
                if ref.hash not in data:
                    raise ValueMissing(f"the stored value of '{ref.key or 'the context'}' is gone")
                found[ref] = self._remember(ref, data[ref.hash])
        return found

    def at_hand(self, refs: Iterable[Ref]) -> dict[Ref, Layer] | None:
        """The layers behind these references, if all were read lately."""
        found: dict[Ref, Layer] = {}
        for ref in refs:
            known = self._layers.get((ref.hash, ref.key))
            if known is None:
                return None
            found[ref] = known[0]
        return found

    async def fetch(self, execution: str, hash: str) -> bytes:
        """One stored value as its bytes."""
        data = await self._state.get(execution, [hash])
        if hash not in data:
            raise ValueMissing("a stored value is gone", {"hash": hash})
        return data[hash]

    async def find(self, execution: str, hash: str) -> bytes | None:
        """One stored value as its bytes, if there is one."""
        return (await self._state.get(execution, [hash])).get(hash)

    async def variables(self, execution: str) -> dict[str, Any]:
        """The variables of an execution."""
        found = await self._state.variables(execution)
        return {name: msgspec.json.decode(data) for name, data in found.items()}

    def _remember(self, ref: Ref, data: bytes) -> Layer:
        layer = Layer({ref.key: Raw(data)} if ref.key else _layer_decoder.decode(data))
        # Two may have read it side by side.
        _, replaced = self._layers.pop((ref.hash, ref.key), (layer, 0))
        self._layers[ref.hash, ref.key] = (layer, len(data))
        self._weight += len(data) - replaced
        while self._weight > self._room and len(self._layers) > 1:
            self._weight -= self._layers.popitem(last=False)[1][1]
        return layer

    # --- storing ---

    def fits(self, raw: Raw) -> bool:
        """Whether a value is no larger than any may be."""
        return weight(raw) <= self._max_value

    def check(self, raw: Raw, what: str) -> None:
        """Refuse a value that is larger than any may be."""
        size = weight(raw)
        if size > self._max_value:
            raise EngineError(
                f"{what} is {size:,} bytes, more than the limit of {self._max_value:,}; "
                "split it, store it elsewhere and pass on where, or raise RUNE_MAX_VALUE",
                "VALUE_TOO_LARGE",
                {"bytes": size, "limit": self._max_value},
            )

    async def fold_all(
        self, execution: str, children: Sequence[tuple[Edge, Branch]]
    ) -> list[tuple[Edge, Branch]]:
        """The same branches, none carrying more than a message may."""
        stored: dict[str, bytes] = {}
        memo: dict[int, Context] = {}
        folded: list[tuple[Edge, Branch]] = []
        for edge, branch in children:
            context = branch.context
            if context.size > INLINE:
                # Children of one step share one context: fold it once.
                known = memo.get(id(context))
                if known is None:
                    known = memo[id(context)] = _folded(context, stored)
                branch = msgspec.structs.replace(branch, context=known)
            folded.append((edge, branch))
        if stored:
            await self._state.put(execution, stored)
        return folded

    async def fold(self, execution: str, context: Context, limit: int = INLINE) -> Context:
        """The same context, carrying at most `limit` bytes."""
        if context.size <= limit:
            return context
        stored: dict[str, bytes] = {}
        folded = _folded(context, stored)
        await self._state.put(execution, stored)
        return folded

    async def put(self, execution: str, values: Mapping[str, bytes]) -> None:
        """Store values under their hashes, or under names that are derived."""
        await self._state.put(execution, values)

    async def store(self, execution: str, data: bytes) -> str:
        """Store one value; its hash."""
        hash = content_hash(data)
        await self._state.put(execution, {hash: data})
        return hash


def _folded(context: Context, stored: dict[str, bytes]) -> Context:
    refs = list(context.refs)
    small: dict[str, Raw] = {}
    for key, raw in context.inline().items():
        if weight(raw) > LARGE:
            refs.append(_ref(bytes(raw), stored, key))
        else:
            small[key] = raw
    if small:
        refs.append(_ref(msgspec.json.encode(small), stored))
    return Context({}, refs=_compacted(refs), writers=context.writers)


def _ref(data: bytes, stored: dict[str, bytes], key: str = "") -> Ref:
    hash = content_hash(data)
    stored[hash] = data
    return Ref(hash, len(data), key)


def _compacted(refs: list[Ref]) -> tuple[Ref, ...]:
    """A value stored anew hides the older one of its name."""
    last = {ref.key: i for i, ref in enumerate(refs) if ref.key}
    return tuple(ref for i, ref in enumerate(refs) if not ref.key or last[ref.key] == i)


def stored_sets(sets: Mapping[str, Any]) -> tuple[Ref | None, bytes]:
    """Variables as they are told, and where they are stored if they are too large to travel."""
    data = msgspec.json.encode(sets)
    return Ref(content_hash(data), len(data), "") if len(data) > LARGE else None, data


def expand(refs: Iterable[Ref], layers: Mapping[Ref, Layer]) -> dict[str, Raw]:
    """All the values behind stored references, the newest of each name."""
    values: dict[str, Raw] = {}
    for ref in refs:
        values.update(layers[ref].raw)
    return values
