"""Playbooks through the API: everything the JSON format has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from rune.core.playbook.tool import Tool, ToolContext
from rune.history.events import Event, packed
from tests.master.client import Api, open_api
from tests.playbooks.diamond import DIAMOND
from tests.playbooks.playing import whole

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: squares}
workload: {upto: 3}
workflow:
  - step: squares
    spec: {loop_mode: fanout}
    loop: {in: "{{ range(workload.upto) }}", iterator: n}
    tool: {kind: python, args: {n: "{{ iter.n }}"}, code: result = n * n}
"""


async def test_a_playbook_is_stored_started_and_looked_at(small: Api) -> None:
    stored = await small.ask("POST", "/api/workflows", json={"source": PLAYBOOK, "publish": True})
    assert stored.status == 201, stored
    assert (stored.json["id"], stored.json["format"]) == ("squares", "playbook")
    body = {"workflow_id": "squares", "input": {"upto": 4}, "wait": 30}
    ended = await small.ask("POST", "/api/executions", json=body)
    assert ended.json["status"] == "completed", ended
    (tokens, squares) = sorted(ended.json["splits"], key=lambda split: str(split["node"]), reverse=True)
    assert (squares["total"], squares["succeeded"]) == (4, 4)
    assert tokens["node"] == "~tokens"


async def test_a_redriven_playbook_runs_what_failed_with_the_ctx_of_what_stands(
    api: Api, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    body = {"source": whole(DIAMOND), "input": {"flag": str(flag)}, "wait": 30}
    failed = (await api.ask("POST", "/api/executions", json=body)).json
    assert failed["status"] == "failed", failed
    flag.touch()
    redriven = await api.post(f"/api/executions/{failed['id']}/redrive")
    assert redriven.status == 202, redriven
    ended = await api.until(redriven.headers["location"], status="completed")
    result = (await api.get(f"/api/executions/{ended['id']}/result")).json["result"]["$~verdict"]
    assert result["ctx"] == {"seen": ["begin"], "left": 1, "right": 2, "sum": 3}


async def test_what_is_wrong_with_a_playbook_has_its_line(small: Api) -> None:
    wrong = PLAYBOOK.replace("kind: python", "kind: pyton")
    answer = await small.ask("POST", "/api/workflows", json={"source": wrong})
    problem = answer.problem(422, answer.json["code"])
    (flaw,) = problem["errors"]
    assert (flaw["code"], flaw["line"]) == ("E044", 10)


SWEEP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sweep}
workflow:
  - step: sweep
    spec: {loop_mode: fanout, fanout: {allow_partial: true, max_job_retries: 1, key: "k{{ iter.n }}"}}
    loop: {in: [0, 1], iterator: n}
    tool:
      - first: {kind: noop}
      - divide: {kind: python, args: {n: "{{ iter.n }}"}, code: result = 1 / n}
    next: [{step: report}]
  - {step: report, tool: {kind: noop}}
"""


async def _all_events(api: Api, id: str, limit: int, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = None
    while True:
        given = "".join(f"&{name}={value}" for name, value in query.items())
        if after:
            given += f"&after={after}"
        page = (await api.get(f"/api/executions/{id}/events?limit={limit}{given}")).json
        assert len(page["items"]) <= limit
        found += page["items"]
        after = page["next"]
        if after is None:
            return found


async def test_a_playbook_tells_what_happened_in_its_own_words(small: Api) -> None:
    ended = await small.ask("POST", "/api/executions", json={"source": SWEEP, "wait": 30})
    assert ended.json["status"] == "completed", ended
    id = ended.json["id"]
    events = await _all_events(small, id, 500)
    of_shard: dict[int, list[str]] = {0: [], 1: []}
    for event in events:
        details = event["details"] or {}
        if "iter_index" in details:
            index = details["iter_index"]
            of_shard[index].append(f"{event['kind']} {details.get('task', '')}".strip())
            assert event["node"] == "sweep"
            assert details["iter_key"] == f"k{index}"
            assert details["shard_id"] == f"{details['loop_id']}.{index}"
    tasks = ["task.started first", "task.processed first", "task.started divide", "task.processed divide"]
    assert of_shard[1] == ["loop.shard.enqueued", "loop.shard.started", *tasks, "loop.shard.done"]
    assert of_shard[0] == [
        *("loop.shard.enqueued", "loop.shard.started", *tasks),
        *("loop.shard.enqueued", "loop.shard.started", *tasks),
        "loop.shard.failed",
    ]
    rest = [
        e for e in events if "iter_index" not in (e["details"] or {}) and not e["kind"].startswith("task.")
    ]
    assert [(e["node"], e["kind"]) for e in rest] == [
        ("sweep", "step.started"),
        ("sweep", "loop.fanout.started"),
        ("sweep", "loop.fanin.completed"),
        ("sweep", "loop.done"),
        ("report", "step.started"),
        ("report", "step.done"),
        (None, "playbook.completed"),
    ]
    assert rest[1]["details"]["shards"] == 2
    assert {event["item"] for event in rest} == {None}
    (loop,) = {e["details"]["loop_id"] for e in events if "loop_id" in (e["details"] or {})}
    fanin = {"loop_id": loop, "status": "partial", "succeeded": 1, "failed": 1}
    assert rest[2]["details"] == fanin
    (failed,) = [event for event in events if event["kind"] == "loop.shard.failed"]
    assert (failed["attempt"], failed["error"]["code"]) == (2, "CODE_RAISED")
    # The same in small pages, which cut through what one step told.
    assert await _all_events(small, id, 3) == events
    assert await _all_events(small, id, 3, node="report") == [e for e in events if e["node"] == "report"]
    engine = await _all_events(small, id, 500, view="engine")
    assert {event["node"] for event in engine} >= {"sweep~shard", "~verdict"}


async def test_a_page_looks_through_part_of_a_long_log_and_says_where_it_goes_on(small: Api) -> None:
    ended = (await small.ask("POST", "/api/executions", json={"source": PLAYBOOK, "wait": 30})).json
    id, database = ended["id"], small.master.history.database
    whole = await _all_events(small, id, 500, node="squares")
    (last,) = await database.fetch("SELECT max(last_seq) AS seq FROM history_event")
    segment = packed([Event(at=1.0, kind="running", node="other~shard")] * 1_000)
    sql = "INSERT INTO history_event (execution_id, first_seq, last_seq, data) VALUES ($1, $2, $3, $4)"
    firsts = [last["seq"] + 1 + 1_000 * n for n in range(30)]
    await database.write((sql, [(id, first, first + 999, segment) for first in firsts]))
    for view in ("playbook", "engine"):
        page = (await small.get(f"/api/executions/{id}/events", node="nobody", view=view)).json
        assert page["items"] == []
        assert page["next"] is not None
        assert await _all_events(small, id, 500, node="nobody", view=view) == []
    assert await _all_events(small, id, 500, node="squares") == whole


class Mine(Tool, kw_only=True):
    """A tool of somebody's own."""

    name: ClassVar = "tool.mine"

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        return {"result": None}


async def test_what_ran_can_be_looked_at_without_what_it_ran_on(tmp_path: Path) -> None:
    source = PLAYBOOK.replace("kind: python", "kind: mine").replace(", code: result = n * n", "")
    path = tmp_path / "rune.db"
    async with open_api(path, types=[Mine]) as api:
        ended = (await api.ask("POST", "/api/executions", json={"source": source, "wait": 30})).json
        assert ended["status"] == "completed", ended
        assert "loop.shard.done" in {event["kind"] for event in await _all_events(api, ended["id"], 500)}
    async with open_api(path) as api:
        events = await _all_events(api, ended["id"], 500)
        assert events == await _all_events(api, ended["id"], 500, view="engine")
        assert {event["node"] for event in events} >= {"squares~shard", "~verdict"}
        assert (await api.get(f"/api/executions/{ended['id']}/logs")).status == 200
        assert (await api.get(f"/api/executions/{ended['id']}/why")).status == 200
        step = await api.get(f"/api/executions/{ended['id']}/steps/{events[1]['step']}")
        assert "cannot be compiled" in step.json["notes"][0]
