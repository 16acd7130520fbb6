"""How the items of a described source are read, portion by portion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from rune.core.errors import NodeError
from rune.core.node import Portion, StepContext
from rune.core.playbook.references import is_manifest, is_result_ref
from rune.core.sources import Descriptor
from rune.core.workflow import Retry

__all__ = ["RETRY", "read_items", "read_portion"]

RETRY = Retry(attempts=4, delay=1.0, backoff="exponential")
"""How a portion is tried again that may be had later."""
_LOCAL = 1000
"""Items that a loop on one worker has at hand."""


async def read_portion(
    source: Mapping[str, Any], context: StepContext, position: Any, wanted: int
) -> Portion:
    """Some items of what is described, or kept: from a position on, about as many as wanted."""
    if is_manifest(source) or is_result_ref(source):
        from rune.nodes._sources.manifest import read_part

        return await read_part(source, context, position, wanted)
    described = msgspec.convert(source, Descriptor)
    if described.sql is not None:
        from rune.nodes._sources.rows import read_rows

        return await read_rows(described.sql, context, position, wanted)
    if described.pages is not None:
        from rune.nodes._sources.pages import read_page

        return await read_page(described.pages, context, position)
    from rune.nodes._sources.files import read_file

    artifacts, threads = context.service("artifacts"), context.service("threads")
    portion: Portion = await threads.run(lambda: read_file(artifacts, described, position, wanted))
    return portion


async def read_items(source: Mapping[str, Any], context: StepContext) -> AsyncGenerator[Any, None]:
    """All items, one after another; what may be had later is tried again."""
    position: Any = None
    while True:
        portion = await _persisting(source, context, position)
        for item in portion.items:
            yield item
        position = portion.position
        if position is None:
            return


async def _persisting(source: Mapping[str, Any], context: StepContext, position: Any) -> Portion:
    attempt = 1
    while True:
        try:
            return await read_portion(source, context, position, _LOCAL)
        except NodeError as error:
            if not error.retryable or attempt >= RETRY.attempts:
                raise
            await asyncio.sleep(RETRY.rest(attempt))
        attempt += 1
