"""Files that cannot be used, or not now, are refused with a sentence that says what to do."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rune.backends.sqlite import open_sqlite
from rune.backends.sqlite.opening import VERSION
from rune.core.errors import InfrastructureError
from rune.core.operations import Commit, Settle


async def refused(path: Path) -> str:
    """Why this file is not opened."""
    with pytest.raises(InfrastructureError) as caught:
        async with open_sqlite(str(path)):
            raise AssertionError("it was opened")
    return str(caught.value)


async def make(path: Path) -> None:
    async with open_sqlite(str(path)) as (_, state):
        await state.put("exec_1", {"h": b"1"})


def sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


async def test_a_new_file_is_made_with_the_directories_to_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "rune.db"
    await make(path)
    assert sorted(os.listdir(path.parent)) == ["rune.db"]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    connection.close()


async def test_an_empty_file_is_as_good_as_none(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    path.touch()
    await make(path)


async def test_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    await make(path)
    sql(path, "PRAGMA user_version = 999")
    before = path.read_bytes()
    why = await refused(path)
    assert f"has version 999, and this Rune reads version {VERSION}" in why
    assert "--db" in why
    assert path.read_bytes() == before


async def test_a_file_of_an_older_version_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    schema = Path(__file__).with_name("schema_1.sql").read_text(encoding="utf-8")
    connection = sqlite3.connect(path)
    connection.executescript(schema)
    connection.close()
    sql(
        path,
        f"PRAGMA application_id = {int.from_bytes(b'Rune')}",
        "PRAGMA user_version = 1",
        "INSERT INTO barrier VALUES ('exec_1', 'b', '', 1, 1, NULL, 0, 0, 1, '', CAST('r' AS BLOB), x'')",
        "INSERT INTO tally VALUES ('exec_1', 'b', 1, 0, 0, 0, 0, '', '', CAST('[]' AS BLOB), NULL)",
    )
    async with open_sqlite(str(path)) as (_, state):
        (answer,) = await state.apply("exec_1", [Commit("item", (("b", 0),), [Settle(-1, b"1")])])
        assert answer.release == b"r"
    new = tmp_path / "new.db"
    await make(new)
    assert columns(path) == columns(new)


def columns(path: Path) -> set[tuple[str, str]]:
    """The columns of all tables, and the version."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
    ).fetchall()
    version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return {*found, ("version", *version)}


async def test_another_version_without_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    sql(path, "PRAGMA user_version = 999")
    assert "has version 999" in await refused(path)


async def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    sql(path, "CREATE TABLE theirs (x)", f"PRAGMA user_version = {VERSION}")
    assert "is the database of another program" in await refused(path)


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    path.write_text('{"nodes": []}' * 100)
    why = await refused(path)
    assert "file is not a database" in why
    assert "--db" in why
    assert path.read_text() == '{"nodes": []}' * 100


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "is a directory" in await refused(tmp_path)
    assert not os.path.exists(f"{tmp_path}.lock")


async def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be opened" in await refused(tmp_path / "file" / "rune.db")
    assert "cannot be opened" in await refused(Path("/proc/rune.db"))


async def test_a_file_is_open_once_in_a_process(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    async with open_sqlite(str(path)) as (_, state):
        assert f"is in use by process {os.getpid()}" in await refused(path)
        await state.put("exec_1", {"h": b"1"})
    await make(path)


HOLDER = """
import asyncio, sys
from rune.backends.sqlite import open_sqlite

async def main():
    async with open_sqlite(sys.argv[1]) as (_, state):
        await state.put("exec_1", {"h": b"theirs"})
        print("open", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_file_in_use_elsewhere_is_refused_until_that_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        assert f"is in use by process {holder.pid}" in await refused(path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    async with open_sqlite(str(path)) as (_, state):
        assert await state.get("exec_1", ["h"]) == {"h": b"theirs"}


async def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rune.db"
    await make(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(InfrastructureError, match=r"malformed.*damaged"):
        async with open_sqlite(str(path)) as (_, state):
            await state.get("exec_1", ["h"])


async def test_what_is_asked_after_the_close_fails(tmp_path: Path) -> None:
    async with open_sqlite(str(tmp_path / "rune.db")) as (_, state):
        pass
    with pytest.raises(InfrastructureError, match="has been closed"):
        await state.put("exec_1", {"h": b"1"})
    with pytest.raises(InfrastructureError, match="has been closed"):
        await state.live()
