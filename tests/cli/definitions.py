"""Workflows of these tests, and nodes for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

TWICE = '''
import rune

@rune.node
def twice(n: int) -> int:
    """Double it."""
    return 2 * n
'''
"""A module with a node type of one's own."""


def in_line(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The edges of nodes that follow one another."""
    return [{"id": f"to_{b['id']}", "src": a["id"], "dst": b["id"]} for a, b in pairwise(nodes)]


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
