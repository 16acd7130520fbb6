"""What holds the whole together, over HTTP."""

from __future__ import annotations

import re

from tests.master.client import Api, flow_of, sleeper


async def test_health_tells_that_it_lives_and_can_work(api: Api) -> None:
    assert (await api.get("/health/live")).json["status"] == "ok"
    ready = (await api.get("/health/ready")).json
    assert ready == {"status": "ok", "checks": {"history": "ok", "runtime": "ok"}}


async def test_what_this_is(api: Api) -> None:
    found = (await api.get("/api/system")).json
    assert found["runtime"] == "local"
    assert found["history"] in ("sqlite", "postgres")


async def test_queues_members_and_timers(api: Api) -> None:
    path = (await api.post("/api/executions", {"definition": flow_of(sleeper(), id="nap")})).headers[
        "location"
    ]
    await api.until(path, status="running")
    roles = {member["role"] for member in (await api.get("/api/members")).json["items"]}
    assert "worker" in roles
    assert all(queue["ready"] >= 0 for queue in (await api.get("/api/queues")).json["items"])
    timers = (await api.once("/api/timers", lambda found: found["items"]))["items"]
    assert timers[0]["execution"] == path.rpartition("/")[2]
    assert timers[0]["node"] == "rest"


async def test_there_are_no_dead_letters_to_begin_with(api: Api) -> None:
    assert (await api.get("/api/letters")).json == {"items": [], "next": None}
    (await api.get("/api/letters/7")).problem(404, "NOT_FOUND")
    (await api.post("/api/letters/7/redrive")).problem(404, "NOT_FOUND")
    (await api.delete("/api/letters/7")).problem(404, "NOT_FOUND")


async def test_metrics_count_requests_by_route_and_executions(small: Api) -> None:
    await small.run(flow_of({"id": "a"}))
    await small.get("/api/executions/nobody")
    await small.get("/no/such/path")
    text = (await small.get("/metrics")).data.decode()
    assert re.search(r'rune_executions_started_total\{trigger="api"\} 1\.0', text)
    assert re.search(r'rune_executions_ended_total\{status="completed"\} 1\.0', text)
    wanted = 'rune_http_requests_total{method="GET",route="/api/executions/{id}",status="404"} 1.0'
    assert wanted in text
    assert "/no/such/path" not in text
    assert 'rune_members{role="worker"} 1.0' in text
