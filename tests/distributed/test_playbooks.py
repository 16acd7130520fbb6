"""Playbooks on workers that are processes of their own: published by hand, spread, killed in the middle."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.distributed.client import Client
from tests.distributed.fleet import Fleet
from tests.playbooks.mortal import MORTAL, entries

SQUARES = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: squares}
workload: {upto: 3}
executor: {spec: {loop_mode: fanout, final_step: total}}
workflow:
  - step: squares
    spec: {fanout: {reducers: {sum: sum}}}
    loop: {in: {range: "{{ workload.upto }}"}, iterator: n}
    tool:
      - square:
          kind: python
          args: {n: "{{ iter.n }}"}
          code: result = n * n
          eval: [{else: {do: continue, set_shared: {sum: "{{ outcome.result }}"}}}]
    next:
      - {step: told, when: "{{ fanin.status == 'complete' }}", args: {sum: "{{ shared.sum }}"}}
  - {step: told, tool: {kind: python, code: "result = sum"}}
  - {step: total, tool: {kind: noop}}
"""


def start(client: Client, playbook: str, input: dict[str, Any], times: int = 1) -> str:
    """Publish what starts a playbook, with exactly the fields of RFC 001 §6.1."""
    execution = f"exec_{uuid.uuid4().hex[:12]}"
    message = {
        "workflow_id": "playbook",
        "execution_id": execution,
        "current_node": "~workload",
        "workflow_definition": yaml.safe_load(playbook),
        "accumulated_context": {"$trigger": input},
    }
    client.publish(message, times=times)
    return execution


def result_of(client: Client, execution: str) -> dict[str, Any]:
    completion = client.completion(execution, 60)
    assert completion["status"] == "completed", completion
    steps: dict[str, Any] = completion["final_context"]["$~verdict"]["steps"]
    return steps


def test_a_fan_out_is_spread_over_workers(shared: Fleet, client: Client) -> None:
    execution = start(client, SQUARES, {"upto": 40})
    steps = result_of(client, execution)
    assert steps["squares"]["results"] == [n * n for n in range(40)]
    assert steps["told"] == sum(n * n for n in range(40))
    shards = [s for s in client.statuses[execution] if s["node_id"] == "squares~shard"]
    done = [s["lineage_stack"][-1]["item_index"] for s in shards if s["status"] == "success"]
    assert sorted(done) == list(range(40))
    shared.is_buried(execution, client.named(execution))


def test_messages_that_come_twice_change_nothing(shared: Fleet, client: Client) -> None:
    with client.echoing():
        execution = start(client, SQUARES, {"upto": 12}, times=2)
        steps = result_of(client, execution)
    assert steps["squares"]["results"] == [n * n for n in range(12)]
    assert steps["told"] == sum(n * n for n in range(12))


def test_a_shard_whose_worker_is_killed_runs_elsewhere_as_itself(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    crew.scheduler()
    first = crew.worker()
    client = crew.client()
    execution = start(client, MORTAL.replace("RETRIES", "3"), {"journal": str(journal)})
    limit = time.monotonic() + 30
    while not any(what == "began" and n == "2" for what, n, *_ in entries(journal)):
        assert time.monotonic() < limit
        time.sleep(0.02)
    first.kill()
    Path(f"{journal}.spared").touch()
    crew.worker()
    work = result_of(client, execution)["work"]
    assert [result["iter_key"] for result in work["results"]] == ["k1", "k2", "k3"]
    assert Counter(what for what, n, *_ in entries(journal) if n == "2") == {"began": 2, "ended": 1}
    # Whoever ran twice had the same names both times.
    assert len({tuple(names) for _, *names in entries(journal)}) == 3
    succeeded = [
        status["lineage_stack"][-1]["item_index"]
        for status in client.statuses[execution]
        if status["node_id"] == "work~shard" and status["status"] == "success"
    ]
    assert sorted(set(succeeded)) == [0, 1, 2]
    assert succeeded.count(1) == 1
    crew.is_buried(execution, client.named(execution))
