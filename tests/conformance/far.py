"""What a test shares with the processes of its crew: the time, and a journal of what effects changed."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import struct
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.harness import Clock
from tests.conformance.nodes import World
from tests.servers.redis import Line

__all__ = ["FarWorld", "Journal", "SharedClock"]

_JOURNAL, _NUMBERS, _HANDLED, _NEWS = "crew:journal", "crew:numbers", "crew:handled", "crew:news"


def _gate(name: str) -> str:
    return f"crew:gate:{name}"


class SharedClock(Clock):
    """Time that passes in many processes when the test says so: a number in a file."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    @property
    def now(self) -> float:
        return float(struct.unpack_from("d", self._memory)[0])

    @now.setter
    def now(self, now: float) -> None:
        struct.pack_into("d", self._memory, 0, now)

    @classmethod
    def make(cls, path: Path) -> SharedClock:
        """A new one."""
        path.write_bytes(struct.pack("d", Clock().now))
        return cls(path)


class FarWorld(World):
    """The world as a process of the crew changes it: through the journal."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._pid = os.getpid()
        self.handled = 0

    def _write(self, *record: Any) -> None:
        self._line.call("RPUSH", _JOURNAL, json.dumps([self._pid, *record]))

    def began(self, node: str, step: str, attempt: int, of: Any, gate: str = "") -> None:
        self._write("began", node, step, attempt, of, gate)

    def ended(self, node: str) -> None:
        self._write("ended", node)

    async def pass_gate(self, name: str) -> None:
        while not self._line.call("EXISTS", _gate(name)):
            await asyncio.sleep(0.01)
        self._write("passed")

    def throw(self, node: str) -> int:
        self._write("threw", node)
        return int(self._line.call("INCR", _NUMBERS))

    def handle(self, handled: int) -> None:
        """So many deliveries have been handled by this process."""
        if handled > self.handled:
            self._line.call("INCRBY", _HANDLED, handled - self.handled)
        self.handled = handled

    def caught_up(self) -> None:
        """This process has read which executions are paused."""
        self._line.call("HINCRBY", _NEWS, str(self._pid), 1)


class _FarGate:
    """A gate in other processes."""

    def __init__(self, line: Line, name: str) -> None:
        self._line = line
        self._name = name

    def set(self) -> None:
        self._line.call("SET", _gate(self._name), 1)

    def clear(self) -> None:
        self._line.call("DEL", _gate(self._name))


class Journal(World):
    """The world as the test sees it: what the crew has written so far."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._read = 0
        self.handled = 0
        """Deliveries that were handled."""
        self.waiting: Counter[int] = Counter()
        """How many steps wait at a gate in each process."""
        for key in line.call("KEYS", "crew:*"):
            line.call("DEL", key)

    def gate(self, name: str) -> _FarGate:
        return _FarGate(self._line, name)

    def read(self) -> None:
        """Catch up with what the crew has written."""
        self.handled = int(self._line.call("GET", _HANDLED) or 0)
        records = self._line.call("LRANGE", _JOURNAL, self._read, -1)
        self._read += len(records)
        for record in records:
            pid, what, *rest = json.loads(record)
            match what:
                case "began":
                    self.waiting[pid] += bool(rest[-1])
                    self.began(*rest)
                case "ended":
                    self.ended(*rest)
                case "threw":
                    self.runs[rest[0]] += 1
                case "passed":
                    self.waiting[pid] -= 1

    def news(self, pid: int) -> int:
        """How often a process has read which executions are paused."""
        return int(self._line.call("HGET", _NEWS, str(pid)) or 0)
