"""A node type with an effect that tests can count, for `rune worker --modules tests.distributed.nodes`."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

from rune import Done, NodeType, Outcome, StepContext


class Nap(NodeType, kw_only=True):
    """Write to a file that it begins, rest, write that it has ended."""

    name: ClassVar = "nap"

    journal: str
    seconds: float = 0.0
    of: Any = None

    async def run(self, context: StepContext) -> Outcome:
        self._write("began", context)
        await asyncio.sleep(self.seconds)
        self._write("ended", context)
        return Done({"of": self.of})

    def _write(self, what: str, context: StepContext) -> None:
        line = f"{what} {context.step} {os.getpid()}\n".encode()
        file = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)
