"""Files that playbooks leave and read: below one directory, by key."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from rune.core.errors import NodeError

__all__ = ["Artifacts"]

_BUFFER = 256 * 1024
# Links were followed before, as far as they may be: one that is there now was put there since. And to wait
# until somebody writes to what is a pipe could be to wait for ever.
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Artifacts:
    """A directory of files, each written whole or not at all.

    Files of a second directory, `beside`, may be read in addition: that of the workflow, for who runs it.
    """

    def __init__(self, directory: Path, beside: Path | None = None) -> None:
        self._directory = directory
        self._beside = beside

    def put(self, key: str, data: bytes) -> dict[str, Any]:
        """Write a file; where it is, and what it holds."""
        path = self._path(key)
        # Whoever writes the same key at the same time has a part of their own.
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise NodeError(f"'{key}' cannot be written: {error.strerror}", "ARTIFACT_UNWRITABLE") from error
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
            with self._opened(key, [self._path(key)]) as file:
                return file.read()
        except OSError as error:
            raise NodeError(f"'{key}' cannot be read: {error.strerror}", "ARTIFACT_UNREADABLE") from error

    def open(self, key: str) -> BinaryIO:
        """A file to read from; it has to be one, and no device or pipe."""
        places = [self._path(key)]
        if self._beside is not None:
            places.append(self._path(key, self._beside))
        return self._opened(key, places)

    def _opened(self, key: str, places: Sequence[Path]) -> BinaryIO:
        for path in places:
            try:
                number = os.open(path, _READING)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise NodeError(f"'{key}' cannot be read: {error.strerror}", "ARTIFACT_UNREADABLE") from error
            if stat.S_ISREG(os.fstat(number).st_mode):
                return os.fdopen(number, "rb", buffering=_BUFFER)
            os.close(number)
            raise NodeError(f"'{key}' is not a file", "ARTIFACT_UNREADABLE")
        raise NodeError(f"there is no file '{key}' below the directory of artifacts", "ARTIFACT_MISSING")

    def _path(self, key: str, directory: Path | None = None) -> Path:
        home = (directory or self._directory).resolve()
        if "\0" in key:
            raise NodeError("a key has no null character", "ARTIFACT_KEY")
        try:
            path = (home / key).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise NodeError(f"the key '{key[:100]}' is no name of a file", "ARTIFACT_KEY") from error
        if not path.is_relative_to(home) or path == home:
            raise NodeError(f"the key '{key}' leads out of the artifacts", "ARTIFACT_KEY")
        return path

    async def close(self) -> None:
        """Nothing is open."""
