"""Reading a described source to its end, without an engine around it."""

from __future__ import annotations

import json
from typing import Any

from rune.nodes._sources import read_portion
from tests.nodes.fakes import FakeContext


async def portions(context: FakeContext, source: dict[str, Any], wanted: int = 1000) -> list[list[Any]]:
    """The items, portion by portion; a position travels as JSON in between."""
    found: list[list[Any]] = []
    position: Any = None
    while True:
        portion = await read_portion(source, context, position, wanted)
        found.append(json.loads(json.dumps(portion.items)))
        position = json.loads(json.dumps(portion.position))
        if position is None:
            return found


async def items(context: FakeContext, source: dict[str, Any], wanted: int = 1000) -> list[Any]:
    """All items."""
    return [item for portion in await portions(context, source, wanted) for item in portion]
