"""The external store: what a shard writes under its own key is there once, however often it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rune.settings import Settings
from tests.playbooks.playing import play
from tests.servers.postgres import shared_postgres

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "warehouse.yaml"
STATIONS = ["oslo", "quito", "nairobi", "lima", "cork"]
AVERAGE = sum(sum(name.encode()) % 40 for name in STATIONS) / len(STATIONS)


@pytest.mark.parametrize(("unlucky", "written"), [(None, 1), ("oslo", 2)])
async def test_a_shard_that_is_run_again_after_it_has_written_leaves_one_row(
    unlucky: str | None, written: int
) -> None:
    server = shared_postgres()
    url = server.new_database()
    settings = Settings(credentials=json.dumps({"warehouse": {"dsn": url}}))
    try:
        played = await play(EXAMPLE, {"unlucky": unlucky}, settings=settings)
        assert played.status == "completed", played.error
        assert played.steps["report"] == {"shards": 5, "average": AVERAGE, "written": written}
        rows = await _rows(url)
    finally:
        server.drop_database(url)
    assert sorted(row["iter_key"] for row in rows) == sorted(STATIONS)
    assert {row["iter_key"]: row["written"] for row in rows} == {
        name: written if name == unlucky else 1 for name in STATIONS
    }
    failed = [m for m in played.told if m.node_id == "measure~shard" and m.status == "failed"]
    assert len(failed) == (unlucky is not None)
    for message in failed:
        assert message.error is not None
        (row,) = [row for row in rows if row["iter_key"] == unlucky]
        assert (message.error.details or {})["shard_id"] == row["shard_id"], "it is the same shard"


async def _rows(url: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch("SELECT * FROM reading"))
    finally:
        await connection.close()
