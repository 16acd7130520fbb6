"""Values that are too large to stand in a row: outputs and results, by their hashes."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from rune.history.asking import Conditions
from rune.history.database import Database
from rune.history.executions import Execution

__all__ = ["Values", "deflated"]

_IN_THREAD = 256 * 1024
"""Bytes from which on a value is compressed or read in a thread."""


_context_decoder = msgspec.json.Decoder(dict[str, Raw])


class Values:
    """Reads what the recorder stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, execution: str, hash: str) -> bytes | None:
        """One value; None where it was lost before it could be stored."""
        return (await self.get_all(execution, [hash])).get(hash)

    async def get_all(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """Values by their hashes; what is not there is left out."""
        where = Conditions()
        where.add("execution_id = ?", execution)
        where.one_of("hash", list(hashes))
        rows = await self._database.fetch(f"SELECT hash, data FROM history_value WHERE {where}", *where.args)
        found = {row["hash"]: row["data"] for row in rows}
        if sum(map(len, found.values())) > _IN_THREAD:
            return await asyncio.to_thread(_inflated, found)
        return _inflated(found)

    async def missing(self, execution: str, hashes: Sequence[str]) -> list[str]:
        """Of these hashes those that are not stored."""
        where = Conditions()
        where.add("execution_id = ?", execution)
        where.one_of("hash", list(hashes))
        rows = await self._database.fetch(f"SELECT hash FROM history_value WHERE {where}", *where.args)
        there = {row["hash"] for row in rows}
        return [hash for hash in hashes if hash not in there]

    async def result(self, execution: Execution) -> dict[str, Raw]:
        """The final context of an execution, with every value in it."""
        whole: dict[str, Raw] = {}
        refs = execution.result_refs
        stored = await self.get_all(execution.id, [ref.hash for ref in refs]) if refs else {}
        for ref in refs:
            if ref.hash in stored:
                data = stored[ref.hash]
                whole |= {ref.key: Raw(data)} if ref.key else _context_decoder.decode(data)
        if execution.result is not None:
            whole |= _context_decoder.decode(execution.result)
        return whole


def _inflated(found: Mapping[str, bytes]) -> dict[str, bytes]:
    return {hash: zlib.decompress(data) for hash, data in found.items()}


async def deflated(values: Mapping[tuple[str, str], bytes]) -> dict[tuple[str, str], bytes]:
    """Values as they are stored, by execution and hash."""
    if sum(map(len, values.values())) > _IN_THREAD:
        return await asyncio.to_thread(_deflated, values)
    return _deflated(values)


def _deflated(values: Mapping[tuple[str, str], bytes]) -> dict[tuple[str, str], bytes]:
    return {key: zlib.compress(data, 1) for key, data in values.items()}
