"""The node types that come with Rune, one file each; a new one is a new file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from os import listdir
from os.path import join
from types import MappingProxyType
from typing import Any

from rune.core.node import NodeType
from rune.core.registry import node_types_of

__all__ = ["FAMILIES", "SERVICES", "guarded_services", "load_builtin", "services_beside"]

FAMILIES = {"playbook": "playbook", "tool": "tools"}
"""Types that only playbooks use, by the first part of their names, and the folder of each."""


def load_builtin(folder: str = "") -> list[type[NodeType]]:
    """Every node type of this package, or of one of its folders."""
    package = f"{__name__}.{folder}" if folder else __name__
    # Half the time that pkgutil takes, which every start of Rune pays.
    files = sorted(f for f in listdir(join(__path__[0], folder)) if f.endswith(".py") and f[0] != "_")
    modules = [import_module(f"{package}.{file.removesuffix('.py')}") for file in files]
    return [
        found for module in modules for found in node_types_of(module) if found.__module__ == module.__name__
    ]


def guarded_services(allow: Iterable[str]) -> Mapping[str, Callable[[], Any]]:
    """What nodes share where others than its owner use a machine: calls to its network only as `allow` says.

    SettingsError if an entry of `allow` is not a host, host:port, address or network.
    """
    from rune.nodes._guard import Guard
    from rune.settings import SettingsError

    try:
        guard = Guard(allow)
    except ValueError as error:
        raise SettingsError(f"RUNE_HTTP_ALLOW: {error}") from error

    def http() -> Any:
        from rune.nodes._http_client import HttpClient

        return HttpClient(guard=guard)

    return MappingProxyType({**SERVICES, "http": http, "guard": lambda: guard})


def services_beside(directory: str) -> Mapping[str, Callable[[], Any]]:
    """What nodes share where the owner of a machine runs a workflow: they also read the files beside it."""
    return MappingProxyType({**SERVICES, "artifacts": lambda: _files(directory)})


def _files(beside: str | None = None) -> Any:
    from pathlib import Path

    from rune.nodes._artifacts import Artifacts
    from rune.settings import load_settings, state_directory

    directory = Path(load_settings().artifacts or state_directory() / "artifacts")
    return Artifacts(directory, None if beside is None else Path(beside))


def _http() -> Any:
    from rune.nodes._http_client import HttpClient

    return HttpClient()


def _guard() -> Any:
    from rune.nodes._guard import Guard

    return Guard(["*"])


def _python() -> Any:
    from rune.nodes._python import Python

    return Python()


def _sql() -> Any:
    from rune.nodes._sql import Databases

    return Databases()


def _threads() -> Any:
    from rune.nodes._threads import Threads

    return Threads()


SERVICES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "artifacts": _files,
        "guard": _guard,
        "http": _http,
        "python": _python,
        "sql": _sql,
        "threads": _threads,
    }
)
"""How to make what nodes share in a worker (`context.service(name)`); each has `async close()`."""
