"""The engine: turns one Task into statuses and further Tasks. `handling.py` is where to start reading."""

from rune.engine.handling import Engine

__all__ = ["Engine"]
