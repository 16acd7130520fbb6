"""Playbooks through the API: everything the JSON format has."""

from __future__ import annotations

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
