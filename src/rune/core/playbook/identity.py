"""What is what in a playbook: the document itself, a step by its nodes, a shard by its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["identity_of", "is_playbook", "step_of"]


def is_playbook(definition: Mapping[str, Any]) -> bool:
    """Whether a definition is a playbook rather than a graph, or is meant to be one."""
    return (
        definition.get("kind") == "Playbook"
        or "apiVersion" in definition
        or ("workflow" in definition and "nodes" not in definition)
    )


def step_of(node: str) -> str:
    """The step that a node was made of; empty where it belongs to none."""
    return node.partition("~")[0]


def identity_of(barrier: str, index: int, key: str) -> dict[str, Any]:
    """What a shard is, whenever it is run: what it writes is keyed by it."""
    return {
        "loop_id": barrier,
        "shard_id": f"{barrier}.{index}",
        "iter_index": index,
        "iter_key": key or str(index),
    }
