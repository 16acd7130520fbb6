"""Faults: processes and servers die in mid-flight; every execution ends once, and exactly."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.client import Client, condition, flow, node, put
from tests.distributed.fleet import Fleet, Rune
from tests.servers.process import free_port

NODES = ("--modules", "tests.distributed.nodes")
HASTY = {"RUNE_LEASE": "1", "RUNE_MAX_STARTS": "1000"}
USERS = [[1, 2, 3, 4, 5], [], [6, 7, 8], [9]]


def orders(journal: Path, seconds: float = 0.0) -> dict[str, Any]:
    """For every user, for every order: an effect, or a wait; joined, gathered, and gathered."""
    nodes = [
        node("users", "split", input_array="$trigger"),
        node("orders", "split", input_array="$item", batch_size=1, max_concurrency=3),
        condition("odd", "$item % 2 == 1"),
        node("nap", "nap", journal=str(journal), seconds=seconds),
        node("w", "wait", amount=0.05),
        node("m", "merge"),
        node("inner", "aggregator", collect="$item"),
        node("outer", "aggregator", collect="$inner.aggregated"),
        # So long a definition that it is stored, and goes by its hash.
        put("end", n="{{ $outer.aggregated | length }}", text="long " * 1000),
    ]
    ways = ["users > orders > odd", "odd:true > nap > m", "odd:false > w > m", "m > inner > outer > end"]
    return flow(nodes, *ways)


def all_ended(crew: Fleet, client: Client, executions: list[str]) -> None:
    """Every execution has completed once, with exact arrays, and is buried."""
    for execution in executions:
        context = client.result(execution, 60)
        assert context["$outer"]["aggregated"] == USERS
        assert (context["$outer"]["failed"], context["$outer"]["skipped"]) == (0, 0)
        crew.is_buried(execution)
    assert client.dead == []


def journal_of(path: Path) -> Counter[tuple[str, str]]:
    """How often each step began and ended."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return Counter((what, step) for what, step, _ in lines)


def ends(client: Client, executions: list[str]) -> int:
    return sum(bool(client.completions[execution]) for execution in executions)


# --- at named points ---

POINTS = [
    *(
        f"{when} {what}"
        for what in ("put 1", "apply 1", "apply 4", "lease 1", "finish 3")
        for when in ("before", "after")
    ),
    *("before publish 1", "after publish 1", "after publish 6", "before bury 1", "after bury 1"),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_is_killed_at(crew: Fleet, tmp_path: Path, point: str) -> None:
    crew.scheduler()
    mortal = crew.worker(*NODES, dies=point, **HASTY)
    client = crew.client()
    execution = client.start(orders(tmp_path / "journal"), USERS)
    assert mortal.ended() == -signal.SIGKILL
    crew.worker(*NODES, **HASTY)
    all_ended(crew, client, [execution])
    ended = [count for (what, _), count in journal_of(tmp_path / "journal").items() if what == "ended"]
    assert len(ended) == 5
    assert sum(ended) <= 6, "an effect repeats only if its worker died while running it"


@pytest.mark.parametrize("point", ["after claim 1", "before discharge 1"])
def test_a_scheduler_is_killed(crew: Fleet, tmp_path: Path, point: str) -> None:
    crew.worker(*NODES, **HASTY)
    mortal = crew.scheduler(dies=point, **HASTY)
    client = crew.client()
    execution = client.start(flow([node("w", "wait", amount=0.2), put("n")], "w > n"))
    assert mortal.ended() == -signal.SIGKILL
    crew.scheduler()
    client.result(execution)
    crew.is_buried(execution)


# --- at any moment ---


def test_workers_and_schedulers_are_killed_at_any_moment(crew: Fleet, tmp_path: Path) -> None:
    chance = random.Random(7)
    workers = [crew.worker(*NODES, "--concurrency", "8", **HASTY) for _ in range(3)]
    schedulers = [crew.scheduler(**HASTY) for _ in range(2)]
    client = crew.client()
    client.overhear(echo=True)
    definition = orders(tmp_path / "journal", 0.02)
    executions = []
    for _ in range(4):
        executions += [client.start(definition, USERS) for _ in range(5)]
        client.listen(chance.uniform(0.05, 0.4))
        workers.pop(0).kill()
        workers.append(crew.worker(*NODES, "--concurrency", "8", **HASTY))
        schedulers.pop(0).kill()
        schedulers.append(crew.scheduler(**HASTY))
    all_ended(crew, client, executions)


def test_a_step_that_kills_its_worker_fails_at_the_third_start(crew: Fleet, tmp_path: Path) -> None:
    parent = crew.worker(*NODES, "--processes", "2", RUNE_LEASE="1")
    crew.scheduler()
    client = crew.client()
    others = [client.start(orders(tmp_path / "journal", 0.05), USERS) for _ in range(3)]
    poison = client.start(flow([node("x", "fatal"), put("end")], "x > end"))
    completion = client.completion(poison)
    assert (completion["status"], completion["error"]["code"]) == ("failed", "WORKER_LOST")
    assert parent.log.count("ended with -9; starting another") == 2
    crew.is_buried(poison)
    all_ended(crew, client, others)


def test_redis_is_killed_in_mid_flight(crew: Fleet, tmp_path: Path) -> None:
    workers = [crew.worker(*NODES, "--concurrency", "8", **HASTY) for _ in range(2)]
    schedulers = [crew.scheduler() for _ in range(2)]
    client = crew.client()
    definition = orders(tmp_path / "journal", 0.02)
    executions = [client.start(definition, USERS) for _ in range(20)]
    client.wait(lambda: ends(client, executions) >= 1)
    crew.redis.kill()
    executions += [client.start(definition, USERS) for _ in range(3)]
    client.listen(1.5)
    assert ends(client, executions) < len(executions), "it was in mid-flight"
    crew.redis.start()
    all_ended(crew, client, executions)
    assert all(process.child.poll() is None for process in (*workers, *schedulers)), "nobody gave up"


def test_rabbitmq_is_killed_in_mid_flight(crew: Fleet, tmp_path: Path) -> None:
    workers = [crew.worker(*NODES, "--concurrency", "8", **HASTY) for _ in range(2)]
    schedulers = [crew.scheduler() for _ in range(2)]
    client = crew.client()
    definition = orders(tmp_path / "journal", 0.02)
    executions = [client.start(definition, USERS) for _ in range(20)]
    client.wait(lambda: ends(client, executions) >= 1)
    assert ends(client, executions) < len(executions), "it is in mid-flight"
    crew.rabbit.kill()
    crew.rabbit.start()
    client.reconnect()
    all_ended(crew, client, executions)
    assert all(process.child.poll() is None for process in (*workers, *schedulers)), "nobody gave up"


def test_what_is_met_after_redis_was_emptied_fails_and_new_work_goes_on(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    worker = crew.worker(*NODES)
    client = crew.client()
    nodes = [
        node("s", "split", input_array="$trigger", batch_size=1),
        node("nap", "nap", journal=str(journal), seconds=1.0),
        node("g", "aggregator"),
    ]
    definition = flow(nodes, "s > nap > g")
    execution = client.start(definition, [1, 2])
    begun(client, journal)
    crew.redis.call_in(crew.db, "FLUSHDB")
    completion = client.completion(execution)
    assert (completion["status"], completion["error"]["code"]) == ("failed", "STATE_LOST")
    assert "Redis was emptied" in worker.log
    crew.is_buried(execution)
    client.result(client.start(definition, [1, 2]))
    assert client.dead == []


# --- told to stop ---


def napping(journal: Path, seconds: float) -> dict[str, Any]:
    return flow([node("nap", "nap", journal=str(journal), seconds=seconds), put("end")], "nap > end")


def begun(client: Client, journal: Path) -> None:
    client.wait(lambda: journal.exists() and "began" in journal.read_text(), what="the nap")


def stop(process: Rune, how: signal.Signals = signal.SIGTERM) -> None:
    process.child.send_signal(how)


def test_told_to_stop_in_mid_node_it_completes_the_node(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    worker = crew.worker(*NODES)
    client = crew.client()
    execution = client.start(napping(journal, 1.0))
    begun(client, journal)
    stop(worker)
    assert worker.ended() == 0
    client.listen(0.3)
    assert client.told(execution, "nap") == ["running", "success"]
    crew.worker(*NODES)
    client.result(execution)
    assert sum(journal_of(journal).values()) == 2, "begun once, ended once"


def test_what_does_not_end_in_time_is_given_back(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    worker = crew.worker(*NODES, "--grace", "0.2")
    client = crew.client()
    execution = client.start(napping(journal, 3.0))
    begun(client, journal)
    stop(worker)
    assert worker.ended() == 0
    began = time.monotonic()
    crew.worker(*NODES)
    client.result(execution)
    assert time.monotonic() - began < 15, "the lease was given back, too"
    assert client.dead == []


def test_the_second_signal_stops_at_once(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    worker = crew.worker(*NODES, **HASTY)
    crew.scheduler()
    client = crew.client()
    execution = client.start(napping(journal, 5.0))
    begun(client, journal)
    stop(worker)
    client.wait(lambda: "stopping" in worker.log)
    stop(worker)
    assert worker.ended(2) == -signal.SIGTERM
    crew.worker(*NODES, **HASTY)
    client.result(execution)


def test_the_second_signal_stops_several_processes_at_once(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    parent = crew.worker(*NODES, "--processes", "2", **HASTY)
    crew.scheduler()
    client = crew.client()
    executions = [client.start(napping(journal, 2.0)) for _ in range(4)]
    begun(client, journal)
    client.wait(lambda: len({line.split()[2] for line in journal.read_text().splitlines()}) == 2)
    stop(parent, signal.SIGINT)
    client.wait(lambda: parent.log.count("SIGINT: stopping") == 2)
    stop(parent, signal.SIGINT)
    assert parent.ended(2) == 128 + signal.SIGINT
    crew.worker(*NODES, **HASTY)
    for execution in executions:
        client.result(execution)


def test_whoever_cannot_give_back_in_time_says_so(crew: Fleet, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    worker = crew.worker(*NODES, "--grace", "0", **HASTY)
    crew.scheduler()
    client = crew.client()
    execution = client.start(napping(journal, 1.0))
    begun(client, journal)
    crew.redis.freeze()
    try:
        stop(worker)
        assert worker.ended() == 3
        assert "will be delivered again" in worker.log
    finally:
        crew.redis.thaw()
    crew.worker(*NODES, **HASTY)
    client.result(execution)


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_told_to_stop_while_it_waits_for_redis_it_ends(crew: Fleet, role: str) -> None:
    process = crew.launch(role, "--state", f"redis://127.0.0.1:{free_port()}")
    limit = time.monotonic() + 20
    while "waiting for it" not in process.log:
        assert time.monotonic() < limit, process.log
        time.sleep(0.02)
    stop(process)
    assert process.ended(5) == 0


def test_a_scheduler_stops_when_told(crew: Fleet) -> None:
    scheduler = crew.scheduler("--log-format", "json")
    stop(scheduler, signal.SIGINT)
    assert scheduler.ended() == 0
    assert all(line.startswith("{") for line in scheduler.log.splitlines())


def test_several_processes_and_one_of_them_dies(crew: Fleet, tmp_path: Path) -> None:
    parent = crew.worker(*NODES, "--processes", "2", **HASTY)
    client = crew.client()
    pids: set[str] = set()
    while len(pids) < 2:
        for execution in [client.start(napping(tmp_path / "journal", 0.1)) for _ in range(6)]:
            client.result(execution)
        pids = {line.split()[2] for line in (tmp_path / "journal").read_text().splitlines()}
    os.kill(int(pids.pop()), signal.SIGKILL)
    client.wait(lambda: parent.log.count("worker ready") == 3, what="another process")
    client.result(client.start(napping(tmp_path / "journal", 0.0)))
    stop(parent)
    assert parent.ended() == 0


def test_what_runs_elsewhere_for_a_cancelled_execution_is_stopped(crew: Fleet, tmp_path: Path) -> None:
    """By broadcast: long before the nap would have ended."""
    journal = tmp_path / "journal"
    first = crew.worker(*NODES, "--concurrency", "1", "--prefetch", "1")
    client = crew.client()
    execution = client.start(napping(journal, 60.0))
    begun(client, journal)
    crew.worker(*NODES)
    message = {"workflow_id": "wf", "execution_id": execution, "current_node": "", "accumulated_context": {}}
    client.publish(message | {"phase": "cancel", "details": "enough"})
    assert client.completion(execution)["status"] == "halted"
    # The first worker has room again.
    other = [client.start(napping(journal, 0.3)) for _ in range(6)]
    for each in other:
        client.result(each, 10)
    stop(first)
    assert first.ended(5) == 0
    assert journal_of(journal)["ended", "?"] == 0
    crew.is_buried(execution)
