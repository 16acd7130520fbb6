"""What a worker and a scheduler tell Prometheus, and whether they say that they are well."""

from __future__ import annotations

import json
import random
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.distributed.client import flow, node, put
from tests.distributed.fleet import Fleet
from tests.servers.process import free_port


def ask(port: int, path: str) -> tuple[int, str]:
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def numbers(port: int) -> dict[str, float]:
    """All samples, by name and labels."""
    status, text = ask(port, "/metrics")
    assert status == 200
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def port_of(*arguments: str) -> tuple[int, tuple[str, ...]]:
    """A free port, and the arguments that ask for it."""
    port = free_port()
    return port, ("--metrics-port", str(port), *arguments)


def test_a_worker_and_a_scheduler_tell_what_they_did(crew: Fleet) -> None:
    here, arguments = port_of("--modules", "tests.distributed.nodes")
    crew.worker(*arguments)
    there, arguments = port_of()
    crew.scheduler(*arguments)
    client = crew.client()
    nodes = [
        put("a"),
        node("s", "split", input_array="$trigger", batch_size=1),
        node("w", "wait", amount=0.05),
        node("g", "aggregator"),
        node("bad", "nap", journal="/nowhere/at/all", error={"type": "ignore"}),
        put("end"),
    ]
    definition = flow(nodes, "a > s > w > g > bad > end")
    for execution in [client.start(definition, [1, 2, 3]) for _ in range(2)]:
        client.result(execution)
        crew.is_buried(execution)
    client.send(b'{"workflow_id": "w", "execution_id": "e", "current_node": "n", "accumulated_context": {}}')
    # Each wait is two Tasks: it falls asleep, then wakes and arrives at the aggregator; that opens with one.
    tasks = 2 * (4 + 2 * 3 + 1) + 1
    client.wait(lambda: numbers(here)["rune_tasks_handled_total"] >= tasks)
    client.wait(lambda: numbers(here)["rune_unconfirmed_messages"] == 0)

    worker = numbers(here)
    assert worker["rune_tasks_handled_total"] == tasks
    assert worker["rune_tasks_dead_lettered_total"] == 1, worker
    assert (worker["rune_tasks_retried_total"], worker["rune_tasks_given_back_total"]) == (0, 0)
    assert (worker["rune_tasks_in_flight"], worker["rune_held"]) == (0, 0)
    assert 0 < worker["rune_task_duration_seconds_count"] <= worker["rune_tasks_handled_total"]
    assert worker["rune_steps_total done edit"] == 4
    assert worker["rune_steps_total fan_out split"] == 2
    assert (worker["rune_steps_total sleep wait"], worker["rune_steps_total done wait"]) == (6, 6)
    assert worker["rune_steps_total failed nap"] == 2
    assert worker["rune_state_call_duration_seconds_count"] > 10
    assert worker["rune_published_messages_total"] > 15
    assert (worker["rune_broker_up"], worker["rune_state_up"]) == (1, 1)
    assert worker["process_resident_memory_bytes"] > 1e6
    assert any(name.startswith("rune_build_info") for name in worker)

    scheduler = numbers(there)
    assert scheduler["rune_timers_claimed_total"] == scheduler["rune_timers_published_total"] == 6
    assert scheduler["rune_timer_lateness_seconds_count"] == 6
    assert 0 < scheduler["rune_timer_lateness_seconds_sum"] < 6 * 5


def test_it_is_ready_while_its_servers_can_be_reached(crew: Fleet) -> None:
    ports = []
    for start in (crew.worker, crew.scheduler):
        port, arguments = port_of()
        start(*arguments)
        ports.append(port)
    for port in ports:
        assert ask(port, "/health/ready") == (200, json.dumps({"status": "ok", "troubles": []}))
    crew.redis.freeze()
    try:
        for port in ports:
            status, text = ask(port, "/health/ready")
            assert (status, json.loads(text)["troubles"]) == (503, ["Redis is out of reach"])
            assert ask(port, "/health/live")[0] == 200
            assert ask(port, "/metrics")[0] == 200
    finally:
        crew.redis.thaw()
    client = crew.client()
    for port in ports:
        client.wait(lambda port=port: ask(port, "/health/ready")[0] == 200)  # type: ignore[misc]


def two_ports() -> int:
    """The first of two free ports in a row, where no connection takes one by chance."""
    for port in random.sample(range(20_000, 30_000, 2), 100):
        try:
            with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)):
                return port
        except OSError:
            continue
    raise AssertionError("no two ports are free")


def test_each_process_has_a_port_of_its_own(crew: Fleet) -> None:
    port = two_ports()
    crew.worker("--metrics-port", str(port), "--processes", "2")
    client = crew.client()

    def process(number: int) -> Any:
        try:
            return numbers(port + number).get("process_start_time_seconds")
        except OSError:
            return None

    assert client.wait(lambda: process(0))
    assert client.wait(lambda: process(1))


def test_by_default_nobody_listens_and_a_port_in_use_is_trouble(crew: Fleet) -> None:
    port, arguments = port_of()
    crew.scheduler()
    with pytest.raises(urllib.error.URLError):
        ask(port, "/metrics")
    crew.scheduler(*arguments)
    with pytest.raises(RuntimeError, match=f"metrics cannot be served at 127.0.0.1:{port}"):
        crew.scheduler(*arguments)
