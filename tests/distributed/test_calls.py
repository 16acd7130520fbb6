"""A caller and what it calls, each on workers of its own; a worker that dies while a step waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.distributed.client import flow, node
from tests.distributed.fleet import Fleet
from tests.distributed.test_pools import nap, teams, where

BOOK: dict[str, Any] = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "book"},
    "workload": {"n": 0},
    "workflow": [
        {
            "step": "call",
            "spec": {"lease": {"ttl": 2}},
            "tool": [{"one": {"kind": "playbook", "path": "child", "args": {"n": "{{ workload.n }}"}}}],
        }
    ],
}


def test_the_caller_and_the_called_are_on_different_workers(crew: Fleet, tmp_path: Path) -> None:
    others, pool, client = teams(crew)
    child = {**flow([nap("work", tmp_path, of="$trigger")]), "pool": "gpu"}
    nodes = [
        node("s", "split", input_array="$trigger", batch_size=1),
        node("call", "workflow", workflow="child", input="$item"),
        nap("after", tmp_path, of="$call.of"),
        node("g", "aggregator", collect="$after.of"),
    ]
    definition = {**flow(nodes, "s > call > after > g"), "workflows": {"child": child}}
    execution = client.start(definition, [1, 2, 3, 4, 5])
    assert client.result(execution)["$g"]["aggregated"] == [1, 2, 3, 4, 5]
    crew.is_buried(execution)
    assert where(tmp_path / "work") == {pool.child.pid}
    assert where(tmp_path / "after") == {others.child.pid}
    children = {name: told[0] for name, told in client.completions.items() if name.startswith("child_")}
    assert len(children) == 5
    assert {told["caller"][0] for told in children.values()} == {execution}


def test_a_worker_that_dies_while_a_pipeline_waits_finds_the_child_again(crew: Fleet, tmp_path: Path) -> None:
    others, pool, client = teams(crew, RUNE_LEASE="2")
    slow = flow([nap("work", tmp_path, of="$trigger", seconds=1.5)])
    book = {**BOOK, "workflows": {"child": {**slow, "pool": "gpu"}}}
    caller = {
        **flow([node("call", "workflow", workflow="book", input={"n": 7})]),
        "workflows": {"book": book},
    }
    execution = client.start(caller)
    client.wait((tmp_path / "work").exists, what="the child to begin")
    others.kill()
    crew.worker("--modules", "tests.distributed.nodes", RUNE_LEASE="2")
    result = client.result(execution)["$call"]
    assert result["steps"]["call"] == {"of": {"n": 7}}
    began = [line for line in (tmp_path / "work").read_text().splitlines() if line.startswith("began")]
    assert len(began) == 1, "it is found, not run again"
    assert pool.child.poll() is None
