"""What `test_jobs.py` runs and kills: a playbook on a file, until nothing is left to do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from rune.cli.types import node_types
from rune.embedded import Embedded
from rune.settings import Settings
from tests.playbooks.playing import compiled


async def main(database: str, playbook: str, input: str) -> None:
    """Start the execution if the file is new; then go on until all have ended, and print how."""
    settings = Settings()
    async with Embedded.open(settings, node_types(settings), database) as rune:
        waiting = await rune.unfinished()
        if not waiting:
            flow = compiled(Path(playbook).read_text(encoding="utf-8"))
            waiting = [await rune.start(flow, input=msgspec.json.decode(input))]
        for execution in waiting:
            print(msgspec.json.encode(await rune.result(execution)).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
