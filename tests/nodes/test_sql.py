"""SQL in PostgreSQL and DuckDB."""

from __future__ import annotations

import pytest

from rune.core.errors import NodeError
from rune.nodes._statements import parameters, statements
from rune.nodes.sql import Sql
from tests.nodes.fakes import FakeContext, output


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';'; -- ; no\nSELECT 2", ["SELECT ';'", "-- ; no\nSELECT 2"]),
        ('SELECT ";" /* ; */ ; ;', ['SELECT ";" /* ; */']),
        ("DO $x$ BEGIN; END $x$; SELECT 1", ["DO $x$ BEGIN; END $x$", "SELECT 1"]),
        ("-- only a comment", []),
    ],
)
def test_statements_end_where_a_semicolon_is_one(text: str, found: list[str]) -> None:
    assert statements(text) == found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT 1", 0),
        ("SELECT $1, $12, $2", 12),
        ("SELECT '$3', \"$4\", $$ $5 $$, a$6 -- $7\n/* $8 */ WHERE n>$2", 2),
    ],
)
def test_parameters_are_counted_where_they_are_some(text: str, count: int) -> None:
    assert parameters(text) == count


async def test_rows_come_as_json(sql: FakeContext) -> None:
    found = await output(
        Sql,
        sql,
        command="SELECT 1 AS n, 2.5::numeric AS d, 'x' AS t, NULL AS nothing, now() > '2020-01-01' AS b,"
        " '2026-01-02'::date AS day, ARRAY[1, 2] AS list",
    )
    assert found["rows"] == [
        {"n": 1, "d": 2.5, "t": "x", "nothing": None, "b": True, "day": "2026-01-02", "list": [1, 2]}
    ]
    assert found["row_count"] == 1


async def test_values_of_json_go_in_and_come_out_as_they_are(sql: FakeContext) -> None:
    await output(
        Sql, sql, command="CREATE TABLE v (j jsonb, at timestamptz, day date, t text, n numeric, a int[])"
    )
    given = [{"k": [1, "ü"]}, "2026-01-02T03:04:05Z", "2026-01-02", 7, 1.5, [1, 2]]
    found = await output(
        Sql, sql, command="INSERT INTO v VALUES ($1, $2, $3, $4, $5, $6) RETURNING *", params=given
    )
    assert found["rows"] == [
        {
            "j": {"k": [1, "ü"]},
            "at": "2026-01-02T03:04:05+00:00",
            "day": "2026-01-02",
            "t": "7",
            "n": 1.5,
            "a": [1, 2],
        }
    ]
    text = await output(Sql, sql, command="SELECT $1::jsonb AS j", params=['{"k": 1}'])
    assert text["rows"] == [{"j": {"k": 1}}], "JSON as text is JSON"
    with pytest.raises(NodeError) as raised:
        await output(Sql, sql, command="SELECT $1::date", params=["yesterday"])
    assert raised.value.code == "SQL_ERROR"


async def test_a_statement_that_takes_too_long_is_told(sql: FakeContext) -> None:
    with pytest.raises(NodeError, match=r"took longer than 0.2 s") as raised:
        await output(Sql, sql, command="SELECT pg_sleep(30)", timeout=0.2)
    assert raised.value.code == "SQL_TIMEOUT"
    assert (await output(Sql, sql, command="SELECT 1 AS n"))["rows"] == [{"n": 1}]


@pytest.mark.parametrize("engine", ["postgres", "duckdb"])
async def test_a_command_of_nothing_is_told(sql: FakeContext, engine: str) -> None:
    with pytest.raises(NodeError, match="no statement"):
        await output(Sql, sql, command=" ; -- nothing", engine=engine)


@pytest.mark.parametrize(
    "credential",
    [
        {"dsn": "http://x"},
        {"dsn": "postgresql://u:hush@h:port/x"},
        {"dsn": ""},
        {"dsn": 5},
        {"host": "127.0.0.1", "port": "abc"},
    ],
)
async def test_a_credential_that_is_no_address_is_told(
    sql: FakeContext, credential: dict[str, object]
) -> None:
    wrong = FakeContext({}, credential=credential, services=sql._services)
    with pytest.raises(NodeError) as raised:
        await output(Sql, wrong, command="SELECT 1")
    assert raised.value.code == "SQL_CREDENTIAL"
    assert "hush" not in raised.value.message


async def test_statements_are_one_transaction(sql: FakeContext) -> None:
    await output(Sql, sql, command="CREATE TABLE t (n int)")
    with pytest.raises(NodeError, match="division by zero") as raised:
        await output(Sql, sql, command="INSERT INTO t VALUES (1); SELECT 1 / 0")
    assert raised.value.details == {"sqlstate": "22012"}
    found = await output(Sql, sql, command="INSERT INTO t VALUES ($1), ($2); SELECT * FROM t", params=[5, 6])
    assert found["rows"] == [{"n": 5}, {"n": 6}]


async def test_a_server_that_is_away_may_be_tried_again(sql: FakeContext) -> None:
    away = FakeContext({}, credential={"host": "127.0.0.1", "port": 1}, services=sql._services)
    with pytest.raises(NodeError, match="out of reach") as raised:
        await output(Sql, away, command="SELECT 1")
    assert raised.value.retryable


async def test_a_credential_of_something_else_is_told(sql: FakeContext) -> None:
    other = FakeContext({}, credential={"token": "x"}, services=sql._services)
    with pytest.raises(NodeError, match="where PostgreSQL is"):
        await output(Sql, other, command="SELECT 1")


async def test_duckdb_needs_no_server(sql: FakeContext) -> None:
    command = "SELECT sum(i)::int AS s FROM range(10) t(i)"
    assert (await output(Sql, sql, engine="duckdb", command=command))["rows"] == [{"s": 45}]
    with pytest.raises(NodeError) as raised:
        await output(Sql, sql, engine="duckdb", command="SELECT * FROM nowhere")
    assert raised.value.code == "SQL_ERROR"


async def test_times_with_a_zone_come_out_of_duckdb(sql: FakeContext) -> None:
    command = "SELECT TIMESTAMPTZ '2026-01-02 03:04:05+00' AS at"
    (row,) = (await output(Sql, sql, engine="duckdb", command=command))["rows"]
    assert row["at"].startswith("2026-01-02T")
