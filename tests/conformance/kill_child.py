"""What `test_kill.py` runs and kills: the embedded engine on a file, until nothing is left to do."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from rune.core.registry import Registry
from rune.embedded import Embedded
from rune.formats.graph import compile_workflow
from rune.nodes import load_builtin
from rune.settings import Settings
from tests.conformance import nodes


async def main(database: str, definition: str, input: str) -> None:
    """Start the execution if the file is new; then go on until all have ended, and print how."""
    nodes.far = nodes.World()
    registry = Registry([*load_builtin(), *nodes.TYPES])
    settings = Settings(max_starts=1000, lease=1.0)
    async with Embedded.open(settings, registry, database) as rune:
        waiting = await rune.unfinished()
        if not waiting:
            flow = compile_workflow(msgspec.json.decode(definition), registry)
            waiting = [await rune.start(flow, input=msgspec.json.decode(input))]
        print("started", flush=True)
        for execution in waiting:
            completion = await rune.result(execution)
            print(msgspec.json.encode(completion).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
