"""The wire: RFC 001's messages from a plain AMQP client that knows nothing of Rune."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.distributed.client import Client, condition, flow, node, put
from tests.distributed.fleet import Fleet

GATHER = node("g", "aggregator", collect="$item")


def split(id: str = "s", array: str = "$trigger", **more: Any) -> dict[str, Any]:
    return node(id, "split", input_array=array, **more)


@pytest.fixture(params=["once", "twice"])
def network(request: pytest.FixtureRequest, client: Client) -> Iterator[Client]:
    """The client, on a network that delivers every message once, or all of them twice."""
    with client.echoing() if request.param == "twice" else nullcontext():
        yield client


def run(shared: Fleet, client: Client, definition: dict[str, Any], trigger: Any = None) -> dict[str, Any]:
    """The final context of an execution whose first message comes twice; nothing is left of it."""
    execution = client.start(definition, trigger, times=2)
    context = client.result(execution)
    shared.is_buried(execution, client.named(execution))
    return context


# --- the messages themselves ---


def test_a_chain_and_exactly_the_messages_of_the_rfc(shared: Fleet, client: Client) -> None:
    definition = flow([put("a", n="$trigger.n"), put("b", n="{{ $json.n + 1 }}")], "a > b")
    execution = client.start(definition, {"n": 1})
    completion = client.completion(execution)
    assert completion["status"] == "completed"
    assert completion["workflow_id"] == "wf"
    assert completion["final_context"]["$b"] == {"$json": {"n": 2}}
    assert completion.keys() >= {"completed_at", "total_duration_ms", "final_context"}
    client.wait(lambda: "success" in client.told(execution, "b"), 5)
    assert [client.told(execution, name) for name in "ab"] == [["running", "success"]] * 2
    status = next(s for s in client.statuses[execution] if s["status"] == "success")
    assert status.keys() >= {"workflow_id", "execution_id", "node_id", "output", "executed_at", "duration_ms"}
    shared.is_buried(execution)


def test_a_large_definition_and_a_large_context(shared: Fleet, client: Client) -> None:
    nodes = [put(f"n{i}", text="x" * 500, i=i) for i in range(40)]
    definition = flow(nodes, " > ".join(n["id"] for n in nodes))
    assert len(json.dumps(definition)) > 20_000
    execution = client.start(definition, {"big": "y" * 200_000})
    completion = client.completion(execution)
    assert completion["status"] == "completed"
    assert len(json.dumps(completion)) < 64_000


# --- leaves, conditions, merges ---


def test_several_leaves_are_one_completion(shared: Fleet, network: Client) -> None:
    context = run(shared, network, flow([put("a"), put("b", x=1), put("c", x=2)], "a > b", "a > c"))
    assert (context["$b"], context["$c"]) == ({"x": 1}, {"x": 2})


@pytest.mark.parametrize("value", [1, 9])
def test_a_condition_and_a_merge(shared: Fleet, network: Client, value: int) -> None:
    nodes = [
        condition("c", "$trigger.n > 5"),
        put("yes", w="y"),
        put("no", w="n"),
        node("m", "merge"),
        put("e"),
    ]
    definition = flow(nodes, "c:true > yes > m", "c:false > no > m", "m > e")
    context = run(shared, network, definition, {"n": value})
    assert context["$m"] == {"merged": [{"w": "y" if value > 5 else "n"}]}


def test_a_merge_of_all_is_in_edge_order(shared: Fleet, network: Client) -> None:
    nodes = [put("a"), *(put(f"b{i}", i=i) for i in range(8)), node("m", "merge")]
    context = run(shared, network, flow(nodes, *(f"a > b{i} > m" for i in range(8))))
    assert context["$m"]["merged"] == [{"i": i} for i in range(8)]


@pytest.mark.parametrize("mode", [{"wait_mode": "wait_for_any"}, {"wait_mode": "wait_for_n", "n": 2}, {}])
def test_races_at_a_merge_are_won_once(shared: Fleet, network: Client, mode: dict[str, Any]) -> None:
    """Six branches, which three workers bring at the same time, in each of twenty executions."""
    nodes = [put("a"), *(put(f"b{i}", i=i) for i in range(6)), node("m", "merge", **mode)]
    nodes.append(put("end", n="{{ $m.merged | length }}"))
    definition = flow(nodes, *(f"a > b{i} > m" for i in range(6)), "m > end")
    executions = [network.start(definition) for _ in range(20)]
    for execution in executions:
        context = network.result(execution)
        merged = [each["i"] for each in context["$m"]["merged"]]
        assert len(merged) == mode.get("n", 1 if mode else 6)
        assert merged == sorted(set(merged))
        shared.is_buried(execution)


def test_a_late_arrival_at_a_merge_of_any(shared: Fleet, client: Client) -> None:
    nodes = [
        put("a"),
        put("fast", w="fast"),
        node("w", "wait", amount=0.7),
        put("slow", w="slow"),
        node("m", "merge", wait_mode="wait_for_any"),
        put("end", by="$m.winner"),
    ]
    execution = client.start(flow(nodes, "a > fast > m > end", "a > w > slow > m"))
    assert client.result(execution)["$end"] == {"by": "fast"}
    assert client.told(execution, "end").count("success") == 1
    shared.is_buried(execution)


@pytest.mark.parametrize(("kind", "taken"), [("a", "zero"), ("b", "one"), ("?", "other")])
def test_a_switch(shared: Fleet, network: Client, kind: str, taken: str) -> None:
    rules = [{"value": "$trigger.kind", "compare": k} for k in "ab"]
    nodes = [node("s", "switch", rules=rules), *(put(n, w=n) for n in ("zero", "one", "other"))]
    nodes.append(node("m", "merge"))
    ways = ["s:0 > zero > m", "s:1 > one > m", "s:fallback > other > m"]
    context = run(shared, network, flow(nodes, *ways), {"kind": kind})
    assert context["$m"] == {"merged": [{"w": taken}]}


# --- fan-outs ---


@pytest.mark.parametrize("batch", [1, "auto", 7])
def test_order_in_is_order_out(shared: Fleet, network: Client, batch: Any) -> None:
    nodes = [
        split(batch_size=batch),
        put("b", n="{{ $item * 2 }}"),
        node("g", "aggregator", collect="$json.n"),
        put("e"),
    ]
    context = run(shared, network, flow(nodes, "s > b > g > e"), list(range(100)))
    assert context["$g"]["aggregated"] == [2 * n for n in range(100)]
    assert (context["$g"]["succeeded"], context["$g"]["failed"], context["$g"]["skipped"]) == (100, 0, 0)


def test_nested_splits(shared: Fleet, network: Client) -> None:
    nodes = [
        split("users"),
        split("orders", "$item", batch_size=1),
        put("b", n="{{ $item + 1 }}"),
        node("inner", "aggregator", collect="$json.n"),
        node("outer", "aggregator", collect="$inner.aggregated"),
        put("end"),
    ]
    users = [[1, 2], [], [3], list(range(10))]
    context = run(shared, network, flow(nodes, "users > orders > b > inner > outer > end"), users)
    assert context["$outer"]["aggregated"] == [[n + 1 for n in orders] for orders in users]


def test_a_merge_in_a_split(shared: Fleet, network: Client) -> None:
    nodes = [
        split(batch_size=1),
        put("l", v="l{{ $item }}"),
        put("r", v="r{{ $item }}"),
        node("m", "merge"),
        node("g", "aggregator", collect="$m.merged"),
    ]
    context = run(shared, network, flow(nodes, "s > l > m > g", "s > r > m"), list(range(12)))
    assert context["$g"]["aggregated"] == [[{"v": f"l{i}"}, {"v": f"r{i}"}] for i in range(12)]


def test_errors_of_items_and_ghosts(shared: Fleet, network: Client) -> None:
    nodes = [
        split(),
        condition("c", "$item != 3"),
        node("b", "dateTimeParse", date="{{ '2026-01-0' ~ $item if $item != 5 else 'never' }}"),
        GATHER,
        put("end"),
    ]
    context = run(shared, network, flow(nodes, "s > c", "c:true > b > g > end"), list(range(1, 8)))
    made = context["$g"]["aggregated"]
    assert [made[i] for i in (0, 1, 3, 5, 6)] == [1, 2, 4, 6, 7]
    assert made[2] is None
    assert made[4]["error"]["node"] == "b"
    assert (context["$g"]["succeeded"], context["$g"]["failed"], context["$g"]["skipped"]) == (5, 1, 1)


def test_empty_arrays(shared: Fleet, network: Client) -> None:
    nodes = [split(), put("b"), GATHER, put("end", n="{{ $g.aggregated | length }}")]
    context = run(shared, network, flow(nodes, "s > b > g > end"), [])
    assert context["$end"] == {"n": 0}


# --- time ---


def late_merge(seconds: float) -> dict[str, Any]:
    nodes = [put("a"), put("b"), node("w", "wait", amount=3600), node("m", "merge", timeout=seconds)]
    return flow(nodes, "a > b > m", "a > w > m")


def late_item(seconds: float) -> dict[str, Any]:
    nodes = [split(array="{{ [0, 3600] }}"), node("w", "wait", amount="$item")]
    return flow([*nodes, node("m", "aggregator", timeout=seconds)], "s > w > m")


@pytest.mark.parametrize(
    ("waiting", "code"), [(late_merge, "MERGE_TIMEOUT"), (late_item, "AGGREGATOR_TIMEOUT")]
)
def test_a_short_time_out_behind_a_long_one_fires_in_time(
    shared: Fleet, client: Client, waiting: Callable[[float], dict[str, Any]], code: str
) -> None:
    long = client.start(waiting(60))
    client.wait(lambda: "waiting" in client.told(long, "w"))
    began = time.monotonic()
    short = client.start(waiting(1))
    completion = client.completion(short)
    assert 0.9 < time.monotonic() - began < 10
    assert (completion["status"], completion["error"]["code"]) == ("failed", code)
    assert completion["error"]["node"] == "m"
    shared.is_buried(short)
    assert not client.completions[long]
    cancel(client, long)
    assert client.completion(long)["status"] == "halted"
    shared.is_buried(long)


def cancel(client: Client, execution: str) -> None:
    message = {"workflow_id": "wf", "execution_id": execution, "current_node": "", "accumulated_context": {}}
    client.publish(message | {"phase": "cancel", "details": "enough"}, times=2)


@pytest.mark.parametrize("policy", ["ignore", "branch"])
def test_what_comes_after_a_time_out_changes_nothing(shared: Fleet, network: Client, policy: str) -> None:
    nodes = [
        split(),
        node("w", "wait", amount="$item"),
        node("g", "aggregator", timeout=0.5, error={"type": policy}),
        put("end", code="$g.error.code" if policy == "ignore" else "$error.code"),
        node("last", "wait", amount=1),
    ]
    after = "g > end > last" if policy == "ignore" else "g:error > end > last"
    execution = network.start(flow(nodes, "s > w > g", after), [0, 1])
    assert network.result(execution)["$end"] == {"code": "AGGREGATOR_TIMEOUT"}
    shared.is_buried(execution)


def test_a_wait_is_green_before_its_successor_runs(shared: Fleet, client: Client) -> None:
    began = time.monotonic()
    execution = client.start(flow([node("w", "wait", amount=0.5), put("next")], "w > next"))
    client.result(execution)
    assert 0.4 < time.monotonic() - began < 10
    client.wait(lambda: len(client.statuses[execution]) >= 5, 5)
    assert client.told(execution, "w") == ["running", "waiting", "success"]
    shared.is_buried(execution)


def test_a_wait_that_is_the_last_node(shared: Fleet, network: Client) -> None:
    assert "resume_at" in run(shared, network, flow([node("w", "wait", amount=0.2)]))["$w"]


# --- errors ---

BAD = {"date": "never"}


def test_halt(shared: Fleet, client: Client) -> None:
    nodes = [put("a", x=1), node("bad", "dateTimeParse", **BAD), put("never")]
    execution = client.start(flow(nodes, "a > bad > never"), times=2)
    completion = client.completion(execution)
    assert (completion["status"], completion["error"]["node"]) == ("halted", "bad")
    assert completion["final_context"]["$a"] == {"$json": {"x": 1}}
    client.wait(lambda: "failed" in client.told(execution, "bad"), 5)
    assert client.told(execution, "never") == []
    shared.is_buried(execution)


def test_ignore(shared: Fleet, network: Client) -> None:
    nodes = [
        node("bad", "dateTimeParse", **BAD, error={"type": "ignore"}),
        put("next", was="$bad.error.message"),
    ]
    assert run(shared, network, flow(nodes, "bad > next"))["$next"]["was"]


def test_branch(shared: Fleet, network: Client) -> None:
    nodes = [
        node("bad", "dateTimeParse", **BAD, error={"type": "branch"}),
        put("ok"),
        put("saved", by="$error.node"),
    ]
    context = run(shared, network, flow(nodes, "bad > ok", "bad:error > saved"))
    assert context["$saved"] == {"by": "bad"}
    assert "$ok" not in context


# --- trouble ---


@pytest.mark.parametrize(
    "value",
    [
        '"',
        "\\",
        "\u0000",
        "}{",
        "{{ 1 / 0 }}",
        "$trigger",
        "é☃😀",
        "'; DROP TABLE x; --",
        "\n\r\t",
        "x" * 70_000,
    ],
    ids=["quote", "backslash", "nul", "braces", "template", "reference", "unicode", "sql", "white", "large"],
)
def test_hostile_data_comes_out_as_it_went_in(shared: Fleet, network: Client, value: str) -> None:
    nodes = [
        put("a", v="$trigger.v"),
        split("s", "{{ [$json.v, $trigger.v] }}"),
        put("b", n="{{ $item | length }}", same="{{ $item == $trigger.v }}"),
        node("g", "aggregator", collect="$json"),
        put("end", n="{{ $g.aggregated | length }}"),
    ]
    context = run(shared, network, flow(nodes, "a > s > b > g > end"), {"v": value})
    assert context["$g"]["aggregated"] == [{"n": len(value), "same": True}] * 2
    if len(value) < 100:
        assert context["$a"] == {"v": value}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{ no json UNIQ", "not a NodeExecutionMessage"),
        (b'"UNIQ"', "not a NodeExecutionMessage"),
        (b'{"workflow_id": "wf", "UNIQ": 1}', "execution_id"),
        (
            b'{"workflow_id": "wf", "execution_id": "a b", "current_node": "UNIQ"}',
            "execution_id",
        ),
        (b"\xff\xfe UNIQ", "not a NodeExecutionMessage"),
    ],
)
def test_what_makes_no_sense_is_parked_with_the_reason(client: Client, body: bytes, reason: str) -> None:
    word = f"uniq{time.monotonic_ns()}"
    client.send(body.replace(b"UNIQ", word.encode()))
    (headers,) = client.wait(lambda: client.letters(word), 10)
    assert reason in headers["reason"]


def test_an_unknown_node_is_parked_and_fails_its_execution(shared: Fleet, client: Client) -> None:
    execution = client.start(flow([put("a")]), current_node="nowhere")
    completion = client.completion(execution)
    assert (completion["status"], completion["error"]["code"]) == ("failed", "DEAD_LETTER")
    (headers,) = client.wait(lambda: client.letters(execution), 10)
    assert "nowhere" in headers["reason"]
    assert (headers["node"], headers["execution"]) == ("nowhere", execution)
    shared.is_buried(execution)


def test_an_unknown_type_fails_the_execution(shared: Fleet, client: Client) -> None:
    execution = client.start(flow([put("a"), node("x", "teleport")], "a > x"))
    assert client.completion(execution)["status"] == "failed"
    shared.is_buried(execution)


def test_cancelled(shared: Fleet, client: Client) -> None:
    execution = client.start(flow([node("w", "wait", amount=3600), put("n")], "w > n"))
    client.wait(lambda: "waiting" in client.told(execution, "w"))
    cancel(client, execution)
    completion = client.completion(execution)
    assert (completion["status"], completion["reason"]) == ("halted", "enough")
    shared.is_buried(execution)
