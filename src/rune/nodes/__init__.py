"""The node types that come with Rune, one file each; a new one is a new file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from os import listdir
from types import MappingProxyType
from typing import Any

from rune.core.node import NodeType
from rune.core.registry import node_types_of

__all__ = ["SERVICES", "load_builtin"]


def load_builtin() -> list[type[NodeType]]:
    """Every node type of this package."""
    # Half the time that pkgutil takes, which every start of Rune pays.
    files = sorted(file for file in listdir(__path__[0]) if file.endswith(".py") and file[0] != "_")
    modules = [import_module(f"{__name__}.{file.removesuffix('.py')}") for file in files]
    return [
        found for module in modules for found in node_types_of(module) if found.__module__ == module.__name__
    ]


def _http() -> Any:
    from rune.nodes._http_client import HttpClient

    return HttpClient()


def _threads() -> Any:
    from rune.nodes._threads import Threads

    return Threads()


SERVICES: Mapping[str, Callable[[], Any]] = MappingProxyType({"http": _http, "threads": _threads})
"""How to make what nodes share in a worker (`context.service(name)`); each has `async close()`."""
