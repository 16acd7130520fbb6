"""Definitions to test with, written shortly."""

from __future__ import annotations

import json
from typing import Any


def log(id: str, message: Any = "hello", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "log", "parameters": {"message": message}, **more}


def node(id: str, type: str, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "parameters": parameters or {}, **more}


def edge(id: str, src: str, dst: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "src": src, "dst": dst, **more}


def flow(*parts: dict[str, Any], **more: Any) -> str:
    """A workflow of these nodes and edges, as JSON."""
    nodes = [part for part in parts if "src" not in part]
    edges = [part for part in parts if "src" in part]
    return json.dumps({"nodes": nodes, "edges": edges, **more}, indent=2)
