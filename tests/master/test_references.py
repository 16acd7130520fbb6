"""Results by reference through the API, and in executions that are made of earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.master.client import Api

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large}
workload: {flag: ""}
workflow:
  - step: large
    tool: {kind: python, code: "result = ['x' * 100] * 1000"}
    next: [loop]
  - step: loop
    loop: {in: [0, 1, 2], iterator: n}
    tool: {kind: python, args: {n: "{{ iter.n }}"}, code: "result = str(n) * 80000"}
    next: [check]
  - step: check
    tool:
      kind: python
      args: {all: "{{ large }}", each: "{{ loop.results }}", flag: "{{ workload.flag }}"}
      code: |
        import os
        assert os.path.exists(flag)
        result = [len(all), [len(one) for one in each]]
"""


async def _run(api: Api, flag: Path) -> dict[str, Any]:
    body = {"source": PLAYBOOK, "input": {"flag": str(flag)}, "wait": 60}
    answer = await api.ask("POST", "/api/executions", json=body)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def test_the_value_behind_a_reference_can_be_read(api: Api, tmp_path: Path) -> None:
    ended = await _run(api, tmp_path)
    assert ended["status"] == "completed", ended
    steps = ended["result"]["$~verdict"]["steps"]
    where = f"/api/executions/{ended['id']}/references"
    answer = await api.ask("GET", f"{where}/{steps['large']['ref']}")
    assert answer.json == ["x" * 100] * 1000
    (part,) = steps["loop"]["results"]["parts"]
    answer = await api.ask("GET", f"{where}/{part['ref']}")
    assert [one["kind"] for one in answer.json] == ["result_ref"] * 3
    answer = await api.ask("GET", f"{where}/{answer.json[2]['ref']}")
    assert answer.json == "2" * 80_000


async def test_large_results_stay_in_the_history(small: Api, tmp_path: Path) -> None:
    ended = await _run(small, tmp_path)
    ref = ended["result"]["$~verdict"]["steps"]["large"]["ref"]
    stored = await small.master.history.values.get(ended["id"], ref.removeprefix("rune:"))
    assert stored is not None
    assert len(stored) > 100_000


async def test_a_reference_to_nothing_is_not_found(small: Api, tmp_path: Path) -> None:
    ended = await _run(small, tmp_path)
    where = f"/api/executions/{ended['id']}/references"
    (await small.ask("GET", f"{where}/rune:{'0' * 40}")).problem(404, "NOT_FOUND")
    assert (await small.ask("GET", f"{where}/rune:x")).status == 422
    (await small.ask("GET", f"/api/executions/none/references/rune:{'0' * 40}")).problem(404, "NOT_FOUND")


async def test_what_a_redriven_execution_does_not_run_again_it_can_read(small: Api, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    failed = await _run(small, flag)
    assert failed["status"] == "failed", failed
    flag.touch()
    answer = await small.ask("POST", f"/api/executions/{failed['id']}/redrive", json={"node": "check"})
    assert answer.status == 202, answer
    id = answer.json["id"]
    ended = await small.until(f"/api/executions/{id}", status="completed")
    assert ended["status"] == "completed", ended
    result = (await small.ask("GET", f"/api/executions/{id}/result")).json["result"]["$~verdict"]
    assert result["steps"]["check"] == [1000, [80_000] * 3]
    told = (await small.ask("GET", f"/api/executions/{id}/steps")).json["items"]
    reused = {step["node"] for step in told if (step["details"] or {}).get("reused")}
    assert {"large", "loop"} <= reused
