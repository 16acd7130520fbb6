"""The databases of runs that name none: a file each in the state directory, removed when the run ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rune.settings import state_directory

__all__ = ["fresh", "in_use", "is_ours", "leftovers", "remove"]


def _directory() -> Path:
    return state_directory() / "runs"


def fresh(name: str) -> str:
    """A new file for a run of the workflow `name`."""
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    stem = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:60] or "workflow"
    return str(directory / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.db")


def is_ours(path: str) -> bool:
    """Whether a file is one that `fresh` has made."""
    return Path(path).resolve().parent == _directory().resolve()


def remove(path: str) -> None:
    """Remove a database and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal", ".lock"):
        Path(path + suffix).unlink(missing_ok=True)


def leftovers() -> list[Path]:
    """The files of runs that have not ended, those that still run among them, oldest first."""
    directory = _directory()
    if not directory.is_dir():
        return []
    return sorted(directory.glob("*.db"), key=lambda path: path.stat().st_mtime)


def in_use(path: Path) -> bool:
    """Whether a process has the database open: it then holds the lock beside it."""
    import fcntl

    try:
        with open(f"{path}.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
