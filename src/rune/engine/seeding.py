"""What an execution that is redriven or forked knows before it starts: outcomes, values, edited items."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable

from rune.core.ids import derive
from rune.core.operations import Seed
from rune.core.ports import State

__all__ = ["Seeds", "edits_of", "sow"]

Seeds = Iterable[Seed] | AsyncIterable[Seed]

_MOST = 500
_MOST_BYTES = 1 << 20
"""What one call stores."""


def edits_of(split: str) -> str:
    """Where a split's step finds the items that were edited, as a JSON object by their numbers."""
    return derive(split, "~items")


async def sow(state: State, execution: str, seeds: Seeds) -> None:
    """Store seeds, however many, some at a time."""
    chunk: list[Seed] = []
    size = 0
    async for seed in _each(seeds):
        chunk.append(seed)
        size += len(seed.outcome) + sum(map(len, seed.values.values())) + 100
        if len(chunk) == _MOST or size > _MOST_BYTES:
            await _store(state, execution, chunk)
            chunk, size = [], 0
    if chunk:
        await _store(state, execution, chunk)


async def _each(seeds: Seeds) -> AsyncIterator[Seed]:
    if isinstance(seeds, AsyncIterable):
        async for seed in seeds:
            yield seed
    else:
        for seed in seeds:
            yield seed


async def _store(state: State, execution: str, seeds: list[Seed]) -> None:
    values = {hash: data for seed in seeds for hash, data in seed.values.items()}
    if values:
        await state.put(execution, values)
    await state.seed(execution, [seed for seed in seeds if seed.outcome])
