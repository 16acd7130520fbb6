"""Definitions as people send them: compiled, compared, drawn."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import DefinitionError
from rune.core.registry import Registry
from rune.master.problems import HttpProblem
from rune.master.sources import compile_definition, compile_source, differences, drawn
from rune.nodes import load_builtin

_REGISTRY = Registry(load_builtin())


def _node(id: str, **parameters: Any) -> dict[str, Any]:
    return {"id": id, "type": "log", "parameters": {"message": "hi", **parameters}}


def _flow(*nodes: dict[str, Any], edges: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"workflow_id": "w", "nodes": list(nodes), "edges": edges or []}


def test_yaml_and_json_mean_the_same() -> None:
    yaml = compile_source("nodes:\n  - {id: a, type: log, parameters: {message: hi}}\n", "graph", _REGISTRY)
    json = compile_source(
        '{"nodes": [{"id": "a", "type": "log", "parameters": {"message": "hi"}}]}', "graph", _REGISTRY
    )
    assert yaml.definition == json.definition
    assert list(yaml.runnable().nodes) == ["a"]


def test_a_text_that_cannot_be_run_says_where() -> None:
    compiled = compile_source("nodes:\n  - {id: a, type: logg}\n", "graph", _REGISTRY)
    with pytest.raises(DefinitionError):
        compiled.runnable()
    (problem,) = compiled.problems
    assert (problem.code, problem.line, problem.path) == ("E016", 2, ("nodes", 0, "type"))


def test_another_format_than_it_says_is_a_problem() -> None:
    with pytest.raises(HttpProblem) as raised:
        compile_source("nodes:\n  - {id: a, type: log, parameters: {message: hi}}\n", "playbook", _REGISTRY)
    assert (raised.value.status_code, raised.value.code) == (422, "OTHER_FORMAT")


def test_what_lacks_the_head_of_a_playbook_is_still_meant_as_one() -> None:
    compiled = compile_source("workflow:\n  - {step: a, tool: {kind: noop}}\n", "playbook", _REGISTRY)
    assert compiled.flow is None
    assert "apiVersion" in " ".join(problem.message for problem in compiled.problems)


def test_a_changed_parameter_is_named_by_its_node() -> None:
    before, after = _flow(_node("a"), _node("b", message="x")), _flow(_node("b", message="y"), _node("a"))
    assert differences(before, after) == [
        {"op": "replace", "path": "/nodes/b/parameters/message", "before": "x", "after": "y"}
    ]


def test_added_and_removed_nodes_and_edges() -> None:
    before = _flow(_node("a"), _node("b"), edges=[{"id": "e", "src": "a", "dst": "b"}])
    after = _flow(_node("a"), _node("c"))
    changes = {(change["op"], change["path"]) for change in differences(before, after)}
    assert changes == {("remove", "/nodes/b"), ("add", "/nodes/c"), ("remove", "/edges/e")}


def test_true_is_not_one_and_a_slash_is_escaped() -> None:
    before, after = _flow(_node("a", **{"x/y": 1})), _flow(_node("a", **{"x/y": True}))
    assert differences(before, after) == [
        {"op": "replace", "path": "/nodes/a/parameters/x~1y", "before": 1, "after": True}
    ]


def test_lists_of_one_length_are_compared_item_by_item() -> None:
    before, after = _flow(_node("a", l=[1, {"b": 2}])), _flow(_node("a", l=[1, {"b": 3}]))
    assert [change["path"] for change in differences(before, after)] == ["/nodes/a/parameters/l/1/b"]
    assert differences(before, before) == []


def test_a_drawing_knows_roles_ports_and_positions() -> None:
    definition = _flow(
        {
            "id": "if",
            "type": "conditional",
            "parameters": {"condition": "{{ true }}"},
            "position": [10, 20],
        },
        _node("yes"),
        edges=[{"id": "e", "src": "if", "dst": "yes", "port": "true"}],
    )
    graph = drawn(compile_definition(definition, _REGISTRY), _REGISTRY)
    assert graph["nodes"][0] | {"parameters": {}} == {
        "id": "if",
        "name": "if",
        "type": "conditional",
        "role": "plain",
        "trigger": False,
        "x": 10,
        "y": 20,
        "parameters": {},
    }
    assert graph["edges"] == [{"id": "e", "source": "if", "target": "yes", "port": "true", "label": ""}]


def test_what_cannot_be_run_is_drawn_as_far_as_it_goes() -> None:
    definition = _flow({"id": "a", "type": "no-such"}, edges=[{"id": "e", "src": "a", "dst": "gone"}])
    graph = drawn(compile_definition(definition, _REGISTRY), _REGISTRY)
    assert [node["id"] for node in graph["nodes"]] == ["a"]
    assert graph["edges"][0]["target"] == "gone"
