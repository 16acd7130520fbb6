"""Files that playbooks leave and read: below one directory, by key."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from rune.core.errors import NodeError

__all__ = ["Artifacts"]


class Artifacts:
    """A directory of files, each written whole or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, key: str, data: bytes) -> dict[str, Any]:
        """Write a file; where it is, and what it holds."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever writes the same key at the same time has a part of their own.
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        part.write_bytes(data)
        part.replace(path)
        return {
            "store": "file",
            "key": key,
            "range": [0, len(data)],
            "size": len(data),
            "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
        }

    def get(self, key: str) -> bytes:
        """What a file holds."""
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError as error:
            raise NodeError(f"there is no artifact '{key}'", "ARTIFACT_MISSING") from error

    def _path(self, key: str) -> Path:
        path = (self._directory / key).resolve()
        if not path.is_relative_to(self._directory.resolve()) or path == self._directory.resolve():
            raise NodeError(f"the key '{key}' leads out of the artifacts", "ARTIFACT_KEY")
        return path

    async def close(self) -> None:
        """Nothing is open."""
