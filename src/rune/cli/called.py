"""Workflows that others call, in files: each is looked for beside the file that calls it."""

from __future__ import annotations

from pathlib import Path

from rune.core.errors import DefinitionError, Problem
from rune.core.playbook.identity import is_playbook
from rune.formats.document import load
from rune.formats.linking import Found

__all__ = ["Beside"]

_ENDINGS = ("", ".json", ".yaml", ".yml")


class Beside:
    """Finds workflows by the names of their files, which may leave out how these end."""

    def __init__(self, directory: Path, *, compatibility: bool = False) -> None:
        self._directory = directory
        self._compatibility = compatibility

    def find(self, name: str) -> Found | None:
        """The workflow in a file; DefinitionError if it cannot be read."""
        for ending in _ENDINGS:
            path = self._directory / f"{name}{ending}"
            if "\0" not in name and path.is_file():
                return self._read(path)
        return None

    def _read(self, path: Path) -> Found:
        try:
            value = load(path.read_bytes(), path.name).value
        except OSError as error:
            raise DefinitionError([Problem("E052", f"{path} cannot be read: {error.strerror}")]) from error
        if self._compatibility and is_playbook(value):
            value = {**value, "compatibility": True}
        inner = Beside(path.parent, compatibility=self._compatibility)
        return Found(value, str(path.resolve()), inner)
