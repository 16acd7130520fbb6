"""Rows of a query in portions, from PostgreSQL and DuckDB."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rune.core.errors import NodeError
from rune.nodes._sources import read_portion
from rune.nodes.sql import Sql
from tests.nodes.fakes import FakeContext, output
from tests.nodes.sources.reading import items, portions


def source(query: str, key: str, engine: str, **more: Any) -> dict[str, Any]:
    return {"sql": {"query": query, "key": key, "engine": engine, **more}}


@contextmanager
def elsewhere(file: str, *, read_only: bool) -> Iterator[None]:
    """Another process that has a DuckDB file open."""
    code = f"""
import duckdb, sys
connection = duckdb.connect({file!r}, read_only={read_only})
print("open", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield


ENGINES = pytest.mark.parametrize("engine", ["postgres", "duckdb"])


@ENGINES
@pytest.mark.parametrize("wanted", [1, 3, 4, 100])
async def test_rows_come_in_the_order_of_the_key(sql: FakeContext, engine: str, wanted: int) -> None:
    query = "SELECT 5 - n AS id, 'r' || n AS name FROM generate_series(1, 4) AS t(n); -- no more"
    found = await items(sql, source(query, "id", engine), wanted)
    assert found == [{"id": n, "name": f"r{5 - n}"} for n in range(1, 5)]


@ENGINES
@pytest.mark.parametrize(
    "values",
    [
        "(10), (9), (100)",
        "('b'), ('a'), ('a b'), ('it''s')",
        "(TIMESTAMP '2026-01-01 00:00:00.000002'), (TIMESTAMP '2026-01-01 00:00:00.000001')",
        "(DATE '2026-01-02'), (DATE '2026-01-01')",
        "(CAST('00000000-0000-0000-0000-000000000002' AS uuid)), "
        "(CAST('00000000-0000-0000-0000-000000000001' AS uuid))",
        "(CAST(1.000000000000000001 AS decimal(28, 18))), (CAST(1 AS decimal(28, 18)))",
        "(CAST(0.1 AS double precision) + 0.2), (CAST(0.3 AS double precision))",
        "(9223372036854775807), (9223372036854775806)",
        "(true), (false)",
    ],
)
async def test_keys_of_many_types(sql: FakeContext, engine: str, values: str) -> None:
    """What is read one by one is what is read at once."""
    query = f"SELECT k AS key, CAST(k AS text) AS text FROM (VALUES {values}) AS t(k)"
    whole = await items(sql, source(query, "key", engine))
    assert len(whole) == len(values.split("), ("))
    assert await portions(sql, source(query, "key", engine), 1) == [[row] for row in whole]


async def test_keys_with_a_time_zone(sql: FakeContext) -> None:
    moments = ["2026-01-01 00:00:00.000002+02", "2026-01-01 00:00:00.000001+02", "2026-01-01 00:00:00+03"]
    values = ", ".join(f"(TIMESTAMPTZ '{moment}')" for moment in moments)
    query = f"SELECT k AS key FROM (VALUES {values}) AS t(k)"
    whole = await items(sql, source(query, "key", "postgres"))
    assert await portions(sql, source(query, "key", "postgres"), 1) == [[row] for row in whole]


@ENGINES
async def test_no_rows(sql: FakeContext, engine: str) -> None:
    assert await portions(sql, source("SELECT 1 AS id WHERE false", "id", engine)) == [[]]


@ENGINES
@pytest.mark.parametrize("wanted", [1, 2, 100])
async def test_a_key_of_several_rows_is_refused(sql: FakeContext, engine: str, wanted: int) -> None:
    query = "SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (2, 'c'), (3, 'd')) AS t(id, name)"
    with pytest.raises(NodeError, match="'2' is the 'id' of several rows") as raised:
        await items(sql, source(query, "id", engine), wanted)
    assert raised.value.code == "SOURCE_KEY"


@ENGINES
async def test_a_row_without_a_key_is_refused_before_any_is_given(sql: FakeContext, engine: str) -> None:
    query = "SELECT * FROM (VALUES (1), (2), (NULL)) AS t(id)"
    with pytest.raises(NodeError, match="'id' has a null"):
        await read_portion(source(query, "id", engine), sql, None, 1)


@ENGINES
async def test_wide_rows_come_in_portions_of_about_a_megabyte(sql: FakeContext, engine: str) -> None:
    query = "SELECT n AS id, repeat('é', 100000) AS text FROM generate_series(1, 23) AS t(n)"
    described, found, position = source(query, "id", engine), [], None
    while True:
        portion = await read_portion(described, sql, position, 1000)
        found.append([item["id"] for item in portion.items])
        if portion.position is None:
            break
        position = portion.position
        assert position["most"] <= 2 * len(portion.items), "the database looks at no more than twice as many"
    assert found == [list(range(1, 7)), list(range(7, 13)), list(range(13, 19)), list(range(19, 24))]


@ENGINES
async def test_columns_of_any_name_are_counted(sql: FakeContext, engine: str) -> None:
    names = ("page", "row", "source", "sized")
    columns = ", ".join(f'CAST(NULL AS text) AS "{name}"' for name in names)
    query = f"SELECT n AS id, {columns}, repeat('x', 600000) AS text FROM generate_series(1, 3) AS t(n)"
    found = await portions(sql, source(query, "id", engine))
    assert [[item["id"] for item in portion] for portion in found] == [[1, 2], [3]]


@ENGINES
async def test_a_row_wider_than_a_portion_is_one(sql: FakeContext, engine: str) -> None:
    query = "SELECT n AS id, repeat('x', 2000000) AS text FROM generate_series(1, 3) AS t(n)"
    found = await portions(sql, source(query, "id", engine))
    assert [[item["id"] for item in portion] for portion in found] == [[1], [2], [3]]


@ENGINES
async def test_a_key_of_several_rows_is_refused_also_between_two_portions(
    sql: FakeContext, engine: str
) -> None:
    query = "SELECT id, repeat('x', 600000) AS text FROM (VALUES (1), (2), (2), (3)) AS t(id)"
    with pytest.raises(NodeError, match="'2' is the 'id' of several rows"):
        await items(sql, source(query, "id", engine))


async def test_params_are_values(sql: FakeContext) -> None:
    query = "SELECT n AS id FROM generate_series(1, 10) AS t(n) WHERE n > $1 AND n < $2"
    found = await items(sql, source(query, "id", "postgres", params=[3, 7]), 1)
    assert found == [{"id": 4}, {"id": 5}, {"id": 6}]


@ENGINES
async def test_more_params_than_the_query_names_are_refused(sql: FakeContext, engine: str) -> None:
    query = "SELECT n AS id, '$2' AS \"$3\" FROM generate_series(1, 3) AS t(n) WHERE n > $1 -- $4"
    assert len(await items(sql, source(query, "id", engine, params=[1]), 1)) == 2
    with pytest.raises(NodeError, match="has 2 values, and the query names 1") as raised:
        await items(sql, source(query, "id", engine, params=[1, 2]), 1)
    assert raised.value.code == "SOURCE_QUERY"


@ENGINES
async def test_a_key_is_a_name_and_never_sql(sql: FakeContext, engine: str) -> None:
    odd = 'id" DESC; DROP TABLE kept; --'
    quoted = odd.replace('"', '""')
    query = f'SELECT n AS "{quoted}" FROM generate_series(1, 3) AS t(n)'
    assert await items(sql, source(query, odd, engine), 2) == [{odd: 1}, {odd: 2}, {odd: 3}]
    with pytest.raises(NodeError) as raised:
        await items(sql, source("SELECT 1 AS id", "id = 1 OR true", engine))
    assert raised.value.code == "SQL_ERROR"


async def test_reading_changes_nothing(sql: FakeContext) -> None:
    await output(Sql, sql, command="CREATE TABLE t (id int); CREATE SEQUENCE s")
    for query in ("DELETE FROM t RETURNING id", "SELECT nextval('s') AS id"):
        with pytest.raises(NodeError):
            await items(sql, source(query, "id", "postgres"))
    with pytest.raises(NodeError, match="one SELECT"):
        await items(sql, source("SELECT 1 AS id; DROP TABLE t", "id", "postgres"))


async def test_rows_of_a_duckdb_file(sql: FakeContext, tmp_path: Path) -> None:
    file = str(tmp_path / "rows.duckdb")
    await output(Sql, sql, engine="duckdb", database=file, command="CREATE TABLE t AS FROM range(5) r(id)")
    found = await items(sql, source("FROM t", "id", "duckdb", database=file), 2)
    assert found == [{"id": n} for n in range(5)]


async def test_a_duckdb_file_is_read_by_several_processes(sql: FakeContext, tmp_path: Path) -> None:
    file = str(tmp_path / "rows.duckdb")
    given = {"engine": "duckdb", "database": file}
    await output(Sql, sql, **given, command="CREATE TABLE t AS FROM range(5) r(id)")
    rows = source("FROM t", "id", **given)
    with elsewhere(file, read_only=True):
        assert len(await items(sql, rows)) == 5
    with elsewhere(file, read_only=False):
        with pytest.raises(NodeError, match="lock") as raised:
            await items(sql, rows)
        assert raised.value.retryable, "whoever writes has done so soon"


async def test_a_duckdb_file_is_read_and_written_side_by_side(sql: FakeContext, tmp_path: Path) -> None:
    given = {"engine": "duckdb", "database": str(tmp_path / "rows.duckdb")}
    await output(Sql, sql, **given, command="CREATE TABLE t AS FROM range(2000) r(id)")
    await output(Sql, sql, **given, command="CREATE TABLE u (id int)")

    async def write(number: int) -> None:
        await output(Sql, sql, **given, command=f"INSERT INTO u VALUES ({number})")

    rows = source("FROM t", "id", **given)
    found = await asyncio.gather(*(items(sql, rows, 500) for _ in range(4)), *map(write, range(8)))
    assert [len(one) for one in found[:4]] == [2000] * 4
    (counted,) = (await output(Sql, sql, **given, command="SELECT count(*)::int AS n FROM u"))["rows"]
    assert counted == {"n": 8}


async def test_a_server_that_is_away_may_be_tried_again(sql: FakeContext) -> None:
    away = FakeContext({}, credential={"host": "127.0.0.1", "port": 1}, services=sql._services)
    with pytest.raises(NodeError, match="out of reach") as raised:
        await items(away, source("SELECT 1 AS id", "id", "postgres"))
    assert raised.value.retryable
