"""Playbooks of the NoETL project run, with the results their authors expect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiohttp import web

from rune.settings import Settings
from tests.playbooks.playing import Played, play
from tests.servers.postgres import shared_postgres

PLAYBOOKS = Path(__file__).parents[3] / "shared" / "playbooks"

pytestmark = pytest.mark.skipif(not PLAYBOOKS.is_dir(), reason="the third-party playbooks are not here")


@pytest.fixture
async def api() -> AsyncIterator[str]:
    """The mock API that the playbooks call."""
    calls: dict[str, int] = {}

    async def data(request: web.Request) -> web.Response:
        page, size = int(request.query["page"]), int(request.query["pageSize"])
        items = [{"id": n} for n in range((page - 1) * size, min(page * size, 250))]
        return web.json_response({"items": items, "paging": {"hasMore": page * size < 250, "page": page}})

    async def rows(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": 1}], "paging": {"hasMore": False}})

    async def flaky(request: web.Request) -> web.Response:
        calls["flaky"] = calls.get("flaky", 0) + 1
        return web.json_response({}, status=500) if calls["flaky"] == 1 else await rows(request)

    async def reset(request: web.Request) -> web.Response:
        calls["flaky"] = 0
        return web.json_response({"reset": True})

    async def limited(request: web.Request) -> web.Response:
        calls["limited"] = calls.get("limited", 0) + 1
        if calls["limited"] == 2:
            return web.json_response({}, status=429, headers={"Retry-After": "1"})
        return await rows(request)

    async def refused(request: web.Request) -> web.Response:
        return web.json_response({"error": "no"}, status=401)

    app = web.Application()
    app.router.add_get("/data", data)
    app.router.add_post("/api/v1/flaky/reset", reset)
    app.router.add_get("/api/v1/flaky", flaky)
    app.router.add_get("/api/v1/rate-limited", limited)
    app.router.add_get("/api/v1/assessments", rows)
    app.router.add_get("/api/v1/errors", refused)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield f"http://127.0.0.1:{port}"
    await runner.cleanup()


async def test_http_pagination_collects_all_items(api: str) -> None:
    played = await play(PLAYBOOKS / "01_http_pagination_v2.yaml", {"api_url": api}, compatibility=True)
    assert played.status == "completed"
    assert played.steps["process_results"] == {"count": 250, "status": "processed"}


async def test_errors_are_retried_skipped_or_fatal_as_their_rules_say(api: str) -> None:
    file = PLAYBOOKS / "03_test_pipeline_error_handling.yaml"
    played = await play(file, {"api_url": api}, compatibility=True)
    assert played.status == "completed"
    steps = ("test_retry_transient", "test_rate_limit", "test_skip_transform")
    assert [played.steps[step]["status"] for step in steps] == ["passed"] * 3
    assert played.events("test_fail_auth") == ["step.failed"]
    assert played.steps["generate_report"]["status"] == "success"
    (told,) = [m for m in played.told if m.node_id == "test_fail_auth" and m.status == "failed"]
    assert told.details is not None
    assert [task["task"] for task in told.details["tasks"]] == ["fetch_auth_error"], "nothing after it runs"


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_an_iterator_saves_its_rows_once(mode: str, tmp_path: Path) -> None:
    text = (PLAYBOOKS / "06_iterator_save_test.yaml").read_text(encoding="utf-8")
    file = tmp_path / "playbook.yaml"
    file.write_text(f"{text}\nexecutor: {{spec: {{loop_mode: {mode}}}}}\n", encoding="utf-8")
    server = shared_postgres()
    url = server.new_database()
    settings = Settings(credentials=json.dumps({"pg_local": {"dsn": url}}))
    try:
        for _ in range(2):
            played = await play(file, settings=settings)
            assert played.status == "completed", played.error
        rows = await _rows(url)
        assert len(rows) == 6, "three rows for each of two executions"
        assert {(row["item_name"], row["item_value"]) for row in rows} == {
            ("item1", 100),
            ("item2", 200),
            ("item3", 300),
        }
    finally:
        server.drop_database(url)


async def _rows(url: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch("SELECT * FROM iterator_save_test"))
    finally:
        await connection.close()


async def test_two_loops_do_not_touch_each_other() -> None:
    played: Played = await play(PLAYBOOKS / "08_test_loop_instance_isolation.yaml", compatibility=True)
    found = played.steps["verify_results"]
    assert (found["users_count"], found["products_count"]) == (2, 2)
    assert found["verification"] == "Both loops completed independently"
