"""Pools: a node runs where its pool's workers are, and what rests or fails comes back there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.distributed.client import Client, flow, node, put
from tests.distributed.fleet import Fleet, Rune

NODES = ("--modules", "tests.distributed.nodes")
POOL = ("--queues", "gpu")


def where(journal: Path) -> set[int]:
    """The processes that ran naps of a journal."""
    return {int(line.split()[2]) for line in journal.read_text().splitlines()} if journal.exists() else set()


def nap(id: str, directory: Path, **more: Any) -> dict[str, Any]:
    """A nap with a journal of its own."""
    return node(id, "nap", journal=str(directory / id), **more)


def teams(crew: Fleet, *arguments: str, **environ: str) -> tuple[Rune, Rune, Client]:
    """A worker for everybody, one of the pool, a scheduler, a client."""
    others = crew.worker(*NODES, *arguments, **environ)
    pool = crew.worker(*NODES, *POOL, *arguments, **environ)
    crew.scheduler()
    return others, pool, crew.client()


def test_a_node_with_a_pool_runs_only_there(crew: Fleet, tmp_path: Path) -> None:
    others, pool, client = teams(crew)
    nodes = [
        nap("first", tmp_path),
        node("s", "split", input_array="$trigger", batch_size=1, max_concurrency=3),
        nap("each", tmp_path, pool="gpu", of="$item"),
        node("w", "wait", amount=0.1, pool="gpu"),
        node("g", "aggregator", collect="$item"),
        nap("last", tmp_path),
    ]
    executions = [
        client.start(flow(nodes, "first > s > each > w > g > last"), [1, 2, 3, 4]) for _ in range(5)
    ]
    for execution in executions:
        assert client.result(execution)["$g"]["aggregated"] == [1, 2, 3, 4]
        crew.is_buried(execution)
    assert where(tmp_path / "each") == {pool.child.pid}
    assert where(tmp_path / "first") == where(tmp_path / "last") == {others.child.pid}


def test_a_workflow_names_the_pool_of_all_its_nodes(crew: Fleet, tmp_path: Path) -> None:
    """Started by hand in everybody's queue; a join and a time-out find their way, too."""
    others, pool, client = teams(crew)
    nodes = [
        nap("first", tmp_path),
        nap("a", tmp_path),
        nap("b", tmp_path, pool="default"),
        node("w", "wait", amount=3600),
        node("m", "merge", timeout=0.3, error={"type": "ignore"}),
        nap("last", tmp_path),
    ]
    definition = flow(nodes, "first > a > m > last", "first > b > w > m") | {"pool": "gpu"}
    execution = client.start(definition)
    client.wait(lambda: (tmp_path / "last").exists())
    assert {where(tmp_path / id) == {pool.child.pid} for id in ("first", "a", "last")} == {True}
    assert where(tmp_path / "b") == {others.child.pid}
    client.publish(
        {"workflow_id": "wf", "execution_id": execution, "current_node": "", "accumulated_context": {}}
        | {"phase": "cancel"}
    )
    assert client.completion(execution)["status"] == "halted"
    crew.is_buried(execution)


def test_what_is_tried_again_comes_back_to_its_pool(crew: Fleet, tmp_path: Path) -> None:
    _, pool, client = teams(crew)
    failing = nap("nap", tmp_path, pool="gpu", fails=2, retry={"attempts": 3, "delay": 0.1})
    client.result(client.start(flow([failing, put("end")], "nap > end")))
    assert where(tmp_path / "nap") == {pool.child.pid}
    assert (tmp_path / "nap").read_text().count("began") == 3


def test_work_waits_for_the_workers_of_its_pool(crew: Fleet, tmp_path: Path) -> None:
    crew.worker(*NODES)
    client = crew.client()
    executions = [
        client.start(flow([put("a"), nap("nap", tmp_path, pool="gpu")], "a > nap")) for _ in range(3)
    ]
    client.wait(lambda: all(client.told(execution, "a") for execution in executions))
    client.listen(0.3)
    assert not (tmp_path / "nap").exists()
    pool = crew.worker(*NODES, *POOL)
    for execution in executions:
        client.result(execution)
    assert where(tmp_path / "nap") == {pool.child.pid}
    assert client.dead == []


def test_one_worker_can_serve_several_pools(crew: Fleet, tmp_path: Path) -> None:
    # A queue that is named twice is one queue.
    worker = crew.worker(*NODES, "--queues", "default,gpu,tpu,workflow.execution.gpu")
    client = crew.client()
    nodes = [nap("a", tmp_path, pool="gpu"), nap("b", tmp_path), nap("c", tmp_path, pool="tpu")]
    client.result(client.start(flow(nodes, "a > b > c")))
    assert "WARNING" not in worker.log
