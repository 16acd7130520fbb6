"""Nodes for the workflows of these tests."""

from __future__ import annotations

from typing import Any

TWICE = '''
import rune

@rune.node
def twice(n: int) -> int:
    """Double it."""
    return 2 * n
'''
"""A module with a node type of one's own."""


def edit(id: str, **values: Any) -> dict[str, Any]:
    """A node that gives these values."""
    assignments = [{"name": name, "value": value} for name, value in values.items()]
    return {"id": id, "type": "edit", "parameters": {"mode": "keep_only", "assignments": assignments}}


def log(id: str, message: Any, **parameters: Any) -> dict[str, Any]:
    """A node that logs."""
    return {"id": id, "type": "log", "parameters": {"message": message, **parameters}}


def wait(id: str, seconds: float) -> dict[str, Any]:
    """A node that rests."""
    return {"id": id, "type": "wait", "parameters": {"amount": seconds}}
