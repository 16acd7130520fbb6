"""Broker and State in this process's memory: nothing to install, nothing kept."""

from rune.backends.memory.broker import MemoryBroker
from rune.backends.memory.rows import MemoryRows
from rune.backends.memory.state import MemoryState

__all__ = ["MemoryBroker", "MemoryRows", "MemoryState"]
