"""A place where results are kept, without an engine around it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from rune.core.ids import content_hash
from rune.core.references import reference


class Store:
    """As much of a StepContext as this needs; what is kept first takes longest."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._rest = 0.01

    async def keep(self, data: bytes) -> tuple[str, bytes]:
        rest, self._rest = self._rest, self._rest / 2
        await asyncio.sleep(rest)
        name = reference(content_hash(data))
        self.values[name] = data
        return name, data

    async def load(self, name: str) -> Any:
        return msgspec.json.decode(self.values[name])

    async def fetch(self, name: str) -> bytes:
        return self.values[name]


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
