"""SQLite's errors as sentences that say what to do."""

from __future__ import annotations

import sqlite3

from rune.core.errors import InfrastructureError

__all__ = ["is_trouble", "trouble"]

_REMEDIES = {
    "SQLITE_FULL": "nothing is lost; free space and run `rune resume --db {path}`",
    "SQLITE_IOERR": "nothing that was confirmed is lost; see to the disk and run `rune resume --db {path}`",
    "SQLITE_BUSY": "another program is writing into it; end that and run `rune resume --db {path}`",
    "SQLITE_READONLY": "make the file and its directory writable, or name another file with --db",
    "SQLITE_CANTOPEN": "make the file and its directory readable and writable, or name another with --db",
    "SQLITE_PERM": "make the file and its directory readable and writable, or name another with --db",
    "SQLITE_NOTADB": "name another file with --db",
    "SQLITE_CORRUPT": "the file is damaged; put a copy back in its place, or name another with --db",
}


def is_trouble(error: sqlite3.Error) -> bool:
    """Whether this is about the file, and not about what was asked of it."""
    return _name(error) in _REMEDIES


def trouble(path: str, error: sqlite3.Error) -> InfrastructureError:
    """What went wrong with this file, and what to do about it."""
    remedy = _REMEDIES.get(_name(error), "nothing that was confirmed is lost")
    return InfrastructureError(f"{path}: {error}; {remedy.format(path=path)}")


def _name(error: sqlite3.Error) -> str:
    # The code may be an extended one, such as SQLITE_IOERR_WRITE.
    return "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
