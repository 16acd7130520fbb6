"""The page: plain ES modules, served as they are."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

__all__ = ["assets"]

_KINDS = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}


def assets() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by its path, with its media type."""
    return dict(_below(files(__name__), ""))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, tuple[bytes, str]]]:
    found: list[tuple[str, tuple[bytes, str]]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _below(entry, f"{prefix}{entry.name}/")
        elif kind := _KINDS.get(entry.name.rpartition(".")[2]):
            found.append((f"{prefix}{entry.name}", (entry.read_bytes(), f"{kind}; charset=utf-8")))
    return found
