"""Playbooks through the API: everything the JSON format has."""

from __future__ import annotations

from typing import Any

from tests.master.client import Api

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
