"""Node types for `--modules tests.distributed.nodes`: one with an effect to count, and bad ones."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, ClassVar

from rune import Done, NodeError, NodeType, Outcome, StepContext
from rune.nodes.aggregator import Aggregator


class Nap(NodeType, kw_only=True):
    """Write to a file that it begins, rest, write that it has ended; or fail, some times."""

    name: ClassVar = "nap"

    journal: str
    seconds: float = 0.0
    of: Any = None
    fails: int = 0

    async def run(self, context: StepContext) -> Outcome:
        self._write("began", context)
        await asyncio.sleep(self.seconds)
        if context.attempt <= self.fails:
            raise NodeError(f"failed {context.attempt} times")
        self._write("ended", context)
        return Done({"of": self.of})

    def _write(self, what: str, context: StepContext) -> None:
        line = f"{what} {context.step} {os.getpid()}\n".encode()
        file = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)


class Fatal(NodeType, kw_only=True):
    """Kill whoever runs it."""

    name: ClassVar = "fatal"

    async def run(self, context: StepContext) -> Outcome:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nobody is here any more")


class Blab(Aggregator, kw_only=True):
    """Break the engine itself, and tell all secrets of the worker."""

    name: ClassVar = "blab"

    def keeps_results(self) -> bool:
        raise RuntimeError(f"no, because of {os.environ['RUNE_CREDENTIALS']}")
