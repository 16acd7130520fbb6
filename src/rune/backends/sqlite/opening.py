"""Opening a database file: alone, of the right version, with the right settings."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from rune.backends.sqlite.trouble import trouble
from rune.core.errors import InfrastructureError

__all__ = ["VERSION", "FileLock", "connect"]

VERSION = 4
"""Of the schema, kept as the file's `user_version`."""
_STEPS = {
    1: """ALTER TABLE tally ADD COLUMN source TEXT NOT NULL DEFAULT '';
        CREATE TABLE variable (
            execution TEXT NOT NULL,
            name      TEXT NOT NULL,
            data      BLOB NOT NULL,
            PRIMARY KEY (execution, name)
        ) WITHOUT ROWID""",
    2: """ALTER TABLE step ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE step ADD COLUMN sets BLOB;
        ALTER TABLE variable ADD COLUMN turn INTEGER NOT NULL DEFAULT 0""",
    3: "ALTER TABLE refill ADD COLUMN reads INTEGER NOT NULL DEFAULT 0",
}
"""What makes a file of each older version one of the next."""
_PROGRAM = int.from_bytes(b"Rune")
"""Tells our files from other programs', as the file's `application_id`."""
_WAL_AT_REST = 1 << 20
"""Bytes the write-ahead log is cut back to when it starts anew."""


class FileLock:
    """Makes this process the only one that has the file open; vanishes with the process, however it dies."""

    def __init__(self, path: str) -> None:
        self._name = f"{path}.lock"
        while True:
            self._file = _open(path, self._name)
            if _try_lock(self._file, path):
                if _is_at(self._file, self._name):
                    break
            else:
                holder = os.pread(self._file, 20, 0).decode(errors="replace").strip()
                os.close(self._file)
                raise InfrastructureError(
                    f"{path} is in use by process {holder or '(unknown)'}; "
                    "wait for its end, or name another file with --db"
                )
            # The one before us removed it between our opening and our locking it.
            os.close(self._file)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let others open the file."""
        with suppress(OSError):
            os.unlink(self._name)
        os.close(self._file)


def _open(path: str, name: str) -> int:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InfrastructureError(
            f"{path} cannot be opened: {error.strerror}; name a file in a writable directory with --db"
        ) from error


def _try_lock(file: int, path: str) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        os.close(file)
        raise InfrastructureError(
            f"{path} cannot be locked: {error.strerror}; name a file on a local disk with --db"
        ) from error
    return True


def _is_at(file: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.stat(name))
    return False


def connect(path: str, synchronous: str) -> sqlite3.Connection:
    """The database at `path`, made if it is not there."""
    if os.path.isdir(path):
        raise InfrastructureError(f"{path} is a directory; name a file in it with --db")
    try:
        # A thread commits and a thread checkpoints, but never two at a time on one connection.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise trouble(path, error) from error
    try:
        _prepare(connection, path, synchronous)
    except sqlite3.Error as error:
        connection.close()
        raise trouble(path, error) from error
    except InfrastructureError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: str, synchronous: str) -> None:
    version = _version(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if synchronous == 'full' else 'NORMAL'}")
    # Checkpoints sync, so they are made in a thread: see Database.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_AT_REST}")
    connection.execute("PRAGMA cache_size = -16000")
    if version == 0:
        _create(connection)
    elif version < VERSION:
        _bring_up(connection, version)


def _version(connection: sqlite3.Connection, path: str) -> int:
    """The version of the file, 0 if it is still empty; refuses one that is not ours."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (program,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not (version or program or tables):
        return 0
    if program not in (0, _PROGRAM) or (program == 0 and tables):
        raise InfrastructureError(f"{path} is the database of another program; name another file with --db")
    if not 0 < version <= VERSION or program != _PROGRAM:
        raise InfrastructureError(
            f"{path} has version {version}, and this Rune reads version {VERSION} and older ones; "
            "use the Rune that made it, or name another file with --db"
        )
    return int(version)


def _bring_up(connection: sqlite3.Connection, version: int) -> None:
    steps = ";\n".join(_STEPS[number] for number in range(version, VERSION))
    # In one transaction, version included: a file is of one version or of another.
    connection.executescript(f"BEGIN;\n{steps};\nPRAGMA user_version = {VERSION};\nCOMMIT;")


def _create(connection: sqlite3.Connection) -> None:
    schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    # In one transaction, version included: a file is either empty or whole.
    connection.executescript(
        f"BEGIN;\n{schema}\nPRAGMA application_id = {_PROGRAM};\nPRAGMA user_version = {VERSION};\nCOMMIT;"
    )
