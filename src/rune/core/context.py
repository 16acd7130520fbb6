"""What a branch knows: values by name, kept as the bytes they came in until something reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

__all__ = ["NOBODY", "Context", "Layer", "Ref", "Writers", "weight"]

_decode = msgspec.json.Decoder().decode


Writers = tuple[str, str]
"""The nodes that last wrote `$json` and `$error`: merges ask which of two is older."""
NOBODY: Writers = ("", "")


class Ref(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A stored value: one large value named `key`, or a layer of several."""

    hash: str
    size: int
    key: str = ""


class Layer:
    """Raw values by name, each decoded at most once."""

    __slots__ = ("_decoded", "_size", "raw")

    def __init__(self, raw: Mapping[str, Raw]) -> None:
        self.raw = raw
        self._decoded: dict[str, Any] = {}
        self._size = -1

    @property
    def size(self) -> int:
        """Bytes of the values and their names."""
        if self._size < 0:
            self._size = _size(self.raw)
        return self._size

    def value(self, key: str) -> Any:
        """The decoded value; KeyError if there is none."""
        if key in self._decoded:
            return self._decoded[key]
        value = self._decoded[key] = _decode(self.raw[key])
        return value

    def without(self, keys: set[str]) -> Layer:
        """This layer but for `keys`."""
        if keys.isdisjoint(self.raw):
            return self
        return Layer({key: raw for key, raw in self.raw.items() if key not in keys})


EMPTY = Layer({})


class Context(msgspec.Struct, eq=False, gc=False):
    """A branch's values, newest first: its own, those it shares with its batch, and stored layers.

    Adding a value copies only the branch's own small part; everything else is shared.
    """

    own: Mapping[str, Raw]
    shared: Layer = EMPTY
    refs: tuple[Ref, ...] = ()
    counted: int = 0
    """Bytes of the own values, at least; 0 until somebody asks."""
    writers: Writers = NOBODY
    _decoded: dict[str, Any] | None = None

    def having(self, values: Mapping[str, Raw], writer: str = "") -> Context:
        """This context and these values; `writer` is the node that wrote what is written over and over."""
        writers = self.writers
        if writer:
            writers = (
                writer if "$json" in values else writers[0],
                writer if "$error" in values else writers[1],
            )
        size = self.counted + _size(values) if self.counted else 0
        return Context({**self.own, **values}, self.shared, self.refs, size, writers)

    @property
    def own_size(self) -> int:
        """Bytes of the own values: counted once, then carried along."""
        if self.counted == 0:
            self.counted = _size(self.own)
        return self.counted

    def referring(self, refs: tuple[Ref, ...], writer: str = "") -> Context:
        """This context and these stored values."""
        hidden = {ref.key for ref in refs}
        own = {key: raw for key, raw in self.own.items() if key not in hidden}
        writers = (writer, self.writers[1]) if "$json" in hidden else self.writers
        return Context(own, self.shared.without(hidden), (*self.refs, *refs), writers=writers)

    @property
    def size(self) -> int:
        """Bytes of the inline values."""
        return self.own_size + self.shared.size

    def inline(self) -> dict[str, Raw]:
        """The inline values, shared and own."""
        return {**self.shared.raw, **self.own}

    def needs(self, names: frozenset[str]) -> list[Ref]:
        """The stored layers that have to be at hand before `names` can be read."""
        missing = {n for n in names if n not in self.own and n not in self.shared.raw}
        if not missing or not self.refs:
            return []
        return [ref for ref in self.refs if not ref.key or ref.key in missing]

    def value(self, key: str, loaded: Callable[[Ref], Layer]) -> Any:
        """One value, decoded; KeyError if there is none. `loaded` gives a stored layer."""
        if key in self.own:
            if self._decoded is None:
                self._decoded = {}
            elif key in self._decoded:
                return self._decoded[key]
            value = self._decoded[key] = _decode(self.own[key])
            return value
        if key in self.shared.raw:
            return self.shared.value(key)
        for ref in reversed(self.refs):
            if not ref.key or ref.key == key:
                layer = loaded(ref)
                if key in layer.raw:
                    return layer.value(key)
        raise KeyError(key)

    def raw(self, key: str, loaded: Callable[[Ref], Layer]) -> Raw:
        """One value as its bytes; KeyError if there is none."""
        for layer in (self.own, self.shared.raw):
            if key in layer:
                return layer[key]
        for ref in reversed(self.refs):
            if not ref.key or ref.key == key:
                layer = loaded(ref).raw
                if key in layer:
                    return layer[key]
        raise KeyError(key)

    def has(self, key: str, loaded: Callable[[Ref], Layer]) -> bool:
        """Whether there is such a value."""
        try:
            self.raw(key, loaded)
        except KeyError:
            return False
        return True

    def names(self, loaded: Callable[[Ref], Layer]) -> Iterator[str]:
        """Every name, for suggestions."""
        yield from self.own
        yield from self.shared.raw
        for ref in self.refs:
            yield from (ref.key,) if ref.key else loaded(ref).raw


def weight(raw: Raw) -> int:
    """Bytes of a raw value."""
    return len(memoryview(raw))


def _size(values: Mapping[str, Raw]) -> int:
    return sum([weight(raw) + len(key) + 4 for key, raw in values.items()])
