"""What a definition becomes: ports, entries, policies, names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.core.errors import DefinitionError
from rune.core.registry import Registry
from rune.core.workflow import Retry, Workflow
from rune.formats.graph import check, compile_workflow, examine, load_workflow
from tests.formats.definitions import edge, flow, log, node


def compiled(registry: Registry, *parts: dict[str, Any], **more: Any) -> Workflow:
    return compile_workflow(json.loads(flow(*parts, **more)), registry)


def ports(workflow: Workflow) -> dict[str, str]:
    return {id: edge.port for id, edge in workflow.edges.items()}


def codes(registry: Registry, *parts: dict[str, Any], **more: Any) -> list[str]:
    return [problem.code for problem in check(json.loads(flow(*parts, **more)), registry)[1]]


# Ports


def test_a_conditional_names_its_edges_or_they_have_ports(registry: Registry) -> None:
    named = node("if", "conditional", {"expression": "true", "true_edge_id": "y", "false_edge_id": "n"})
    plain = node("if", "conditional", {"expression": "true", "true_edge_id": "", "false_edge_id": None})
    ways = [log("a"), log("b")]
    flow1 = compiled(registry, named, *ways, edge("y", "if", "a"), edge("n", "if", "b", port="out"))
    flow2 = compiled(
        registry, plain, *ways, edge("y", "if", "a", port="true"), edge("n", "if", "b", port="false")
    )
    assert ports(flow1) == ports(flow2) == {"y": "true", "n": "false"}


def test_a_switch_routes_by_number_and_falls_back(registry: Registry) -> None:
    rules = [{"value": "$trigger.k", "operator": "eq", "compare": c} for c in "xy"]
    flow = compiled(
        registry,
        node("s", "switch", {"rules": rules, "routes": ["e0", "e1", "e2"]}),
        *(log(f"n{i}") for i in range(3)),
        *(edge(f"e{i}", "s", f"n{i}") for i in range(3)),
    )
    assert ports(flow) == {"e0": "0", "e1": "1", "e2": "fallback"}


def test_an_edge_named_at_several_ports_is_followed_from_each(registry: Registry) -> None:
    rules = [{"value": "$trigger.k", "operator": "eq", "compare": c} for c in "xyz"]
    flow = compiled(
        registry,
        node("s", "switch", {"rules": rules, "routes": ["e", "f", "e"]}),
        log("a"),
        log("b"),
        edge("e", "s", "a"),
        edge("f", "s", "b"),
    )
    assert ports(flow) == {"e": "0", "e.2": "2", "f": "1"}
    assert [e.dst for e in flow.route("s", "2")[0]] == ["a"]


@pytest.mark.parametrize(
    "mark", [{"is_error": True}, {"is_error": "error"}, {"port": "error"}, {"by": "node"}]
)
def test_error_edges(mark: dict[str, Any], registry: Registry) -> None:
    error = {"type": "branch"} | ({"error_edge": "e"} if "by" in mark else {})
    flow = compiled(registry, log("a", error=error), log("b"), edge("e", "a", "b", **mark))
    assert flow.edges["e"].is_error
    assert flow.nodes["a"].error.type == "branch"


def test_an_edge_at_no_port_of_its_node_is_never_followed(registry: Registry) -> None:
    condition = node("if", "conditional", {"expression": "true"})
    assert codes(registry, condition, log("a"), edge("e", "if", "a")) == ["W003"]
    assert codes(registry, condition, log("a"), edge("e", "if", "a", port="flase")) == ["W003"]
    switch = node("s", "switch", {"rules": [{"value": 1, "compare": 1}]})
    assert codes(registry, switch, log("a"), edge("e", "s", "a")) == ["W003"]
    assert codes(registry, switch, log("a"), edge("e", "s", "a", port="0")) == []


# Entries and triggers


def test_an_execution_begins_behind_the_trigger(registry: Registry) -> None:
    by_type = compiled(
        registry, node("t", "webhook"), log("a"), log("b"), edge("1", "t", "a"), edge("2", "t", "b")
    )
    by_flag = compiled(
        registry, log("t", trigger=True), log("a"), log("b"), edge("1", "t", "a"), edge("2", "t", "b")
    )
    assert by_type.entries == by_flag.entries == ("a", "b")


def test_without_a_trigger_it_begins_where_nothing_leads(registry: Registry) -> None:
    assert compiled(registry, log("a"), log("b"), log("c"), edge("1", "a", "c")).entries == ("a", "b")


def test_no_nodes_at_all(registry: Registry) -> None:
    assert codes(registry) == ["E023"]


# Nodes


def test_names_default_to_ids_and_ids_to_names(registry: Registry) -> None:
    flow = compiled(registry, log("a"), log("b", name="Say it"), name="Für alle!")
    assert flow.nodes["a"].name == "a"
    assert flow.nodes["b"].name == "Say it"
    assert (flow.id, flow.name) == ("F-r-alle", "Für alle!")
    assert compiled(registry, log("a"), workflow_id="wf_1").id == "wf_1"
    assert compiled(registry, log("a")).id == "workflow"


def test_retry_and_credentials(registry: Registry) -> None:
    flow = compiled(
        registry,
        log("a", retry={"attempts": "3", "delay": 0.5, "backoff": "exponential"}, credentials={"id": 7}),
        log("b", retry=None, credentials={"id": "key", "name": "Key", "type": "http"}, error=None),
    )
    assert flow.nodes["a"].retry == Retry(3, 0.5, "exponential", 3600.0)
    assert flow.nodes["b"].retry is None
    assert [n.credentials for n in flow.nodes.values()] == ["7", "key"]


def test_a_node_runs_in_its_own_pool_or_in_that_of_the_workflow(registry: Registry) -> None:
    parts = [log("a"), log("b", pool="tpu"), log("c", pool="default"), log("d", pool="")]
    ways = [edge("1", "a", "b"), edge("2", "b", "c"), edge("3", "c", "d")]
    flow = compiled(registry, *parts, *ways, pool="gpu")
    assert {id: node.pool for id, node in flow.nodes.items()} == {"a": "gpu", "b": "tpu", "c": "", "d": ""}
    assert {id: edge.pool for id, edge in flow.edges.items()} == {"1": "tpu", "2": "", "3": ""}
    assert {node.pool for node in compiled(registry, *parts[::3], edge("1", "a", "d")).nodes.values()} == {""}


def test_a_node_is_deterministic_if_its_type_and_its_expressions_are(registry: Registry) -> None:
    def edit(value: str) -> dict[str, Any]:
        return {"assignments": [{"name": "x", "value": value}]}

    flow = compiled(
        registry,
        node("pure", "edit", edit("{{ 1 + 1 }}")),
        node("clock", "edit", edit("{{ now() }}")),
        node("effect", "http", {"url": "http://x"}),
    )
    assert [n.deterministic for n in flow.nodes.values()] == [True, False, False]


def test_expressions_may_use_names(registry: Registry) -> None:
    flow = compiled(
        registry,
        log("fetch-1", name="Fetch Users"),
        log("b", '{{ $node["Fetch Users"].message }} and $node["fetch-1"].message'),
        edge("1", "fetch-1", "b"),
    )
    assert flow.nodes["b"].parameters.names == {"$fetch-1"}


def test_extra_fields_are_kept(registry: Registry) -> None:
    data = json.loads(flow(log("a", position=[1, 2], colour="red"), tags=["x"], notes=[1]))
    made, problems = check(data, registry)
    assert made is not None
    assert problems == []
    assert msgspec.json.decode(made.definition) == data


def test_the_definition_may_be_given_as_it_travelled(registry: Registry) -> None:
    data = json.loads(flow(log("a")))
    assert compile_workflow(data, registry, definition=b"as it came").definition == b"as it came"


# Shapes


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        ({}, (), "has no 'nodes'"),
        ({"nodes": [5]}, ("nodes", 0), "must be an object, not the number 5"),
        ({"nodes": [log("a")], "edges": {}}, ("edges",), "must be a list"),
        ({"nodes": [{"type": "log"}]}, ("nodes", 0), "a node has no 'id'"),
        ({"nodes": [log("")]}, ("nodes", 0, "id"), "is empty"),
        ({"nodes": [node("a", "")]}, ("nodes", 0, "type"), "the 'type' of node 'a' is empty"),
        ({"nodes": [log("a", name=5)]}, ("nodes", 0, "name"), "must be text, not the number 5"),
        ({"nodes": [log("a", trigger="yes")]}, ("nodes", 0, "trigger"), "true or false"),
        ({"nodes": [log("a", error="halt")]}, ("nodes", 0, "error"), "must be an object"),
        ({"nodes": [{"id": "a", "type": "log", "parameters": []}]}, ("nodes", 0, "parameters"), "an object"),
        ({"nodes": [log("a", credentials="key")]}, ("nodes", 0, "credentials"), "an object"),
        ({"nodes": [log("a", credentials={"name": "x"})]}, ("nodes", 0, "credentials"), "has no 'id'"),
        ({"nodes": [log("a", retry=3)]}, ("nodes", 0, "retry"), "an object"),
        ({"nodes": [log("a")], "edges": [{"id": "e", "src": "a"}]}, ("edges", 0), "edge 'e' has no 'dst'"),
        ({"nodes": [log("a")], "workflow_id": "a/b"}, ("workflow_id",), "write 'a-b'"),
        ({"nodes": [log("x" * 201)]}, ("nodes", 0, "id"), "at most 200"),
    ],
)
def test_wrong_shapes(data: dict[str, Any], path: tuple[Any, ...], said: str, registry: Registry) -> None:
    flow, problems = check(data, registry)
    assert flow is None
    assert any(p.path == path and said in f"{p.message}; {p.hint}" for p in problems), problems


def test_all_problems_come_at_once(registry: Registry) -> None:
    text = flow(
        node("a", "htpt"),
        log("b", "{{ 1 + }}"),
        node("c", "wait", {"amount": "soon", "unit": "hors"}),
        log("d", error={"type": "branch"}),
        edge("e", "a", "nowhere"),
    )
    _, made, problems = examine(text, "f.json", registry)
    assert made is None
    assert [p.code for p in problems] == ["E016", "E015", "E014", "E014", "E026", "E020"]
    assert [p.line for p in problems] == sorted(p.line or 0 for p in problems)


# Loading


def test_a_file_loads_by_its_path(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("nodes:\n- id: a\n  type: log\n  parameters: {message: on}\n")
    assert load_workflow(file, registry).nodes["a"].parameters.constant.message == "on"
    file.write_text("nodes:\n- id: a\n  type: lgo\n")
    with pytest.raises(DefinitionError) as caught:
        load_workflow(file, registry)
    assert caught.value.source == str(file)
    assert [(p.code, p.line, p.column) for p in caught.value.problems] == [("E016", 3, 9)]


def test_a_text_loads_as_it_is(registry: Registry) -> None:
    assert load_workflow(flow(log("a")), registry).entries == ("a",)
    assert load_workflow(flow(log("a")).encode(), registry, name="f.json").entries == ("a",)
    with pytest.raises(DefinitionError):
        compile_workflow({"nodes": []}, registry)


def test_hundreds_of_levels_need_no_recursion(registry: Registry) -> None:
    nodes = [log(f"n{i}") for i in range(3000)]
    edges = [edge(f"e{i}", f"n{i}", f"n{i + 1}") for i in range(2999)]
    assert len(compiled(registry, *nodes, *edges).edges) == 2999
