"""The JSON Schema takes what the format takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rune.core.node import NodeType
from rune.core.registry import Registry
from rune.formats.document import load
from rune.formats.schema import parameters_schema, workflow_schema
from tests.formats.definitions import edge, flow, log, node

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def validator(registry: Registry) -> Draft202012Validator:
    schema = workflow_schema(registry)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(json.loads(json.dumps(schema)))


def errors(validator: Draft202012Validator, *parts: dict[str, Any]) -> list[str]:
    return [error.message for error in validator.iter_errors(json.loads(flow(*parts)))]


@pytest.mark.parametrize(
    "part",
    [
        log("a"),
        log("a", 5),
        node(
            "a", "http", {"url": "$a.b", "timeout": "30", "headers": "{{ $a.headers }}", "retry": "{{ $n }}"}
        ),
        node("a", "http", {"url": "http://x", "headers": {"x": 1}, "ignore_ssl": "true", "other": 1}),
        node("a", "conditional", {"expression": "$a > 3"}),
        node(
            "a", "conditional", {"expression": [{"op1": "$a", "op2": 3, "operator": "gt"}], "operator": "or"}
        ),
        node("a", "wait", {"amount": "{{ $a.n }}", "unit": "$a.unit"}),
        node("a", "aggregator", {"collect": "$x.y", "reduce": {"s": {"op": "sum", "value": "$item.n"}}}),
        node("a", "merge", {"wait_mode": "wait_for_n", "n": 2, "timeout": "5"}),
        node("a", "switch", {"rules": [{"value": "$a", "compare": 1}], "routes": ["e"]}),
        node("a", "split", {"source": {"range": [1, 5]}, "batch_size": "auto", "label": "$item.name"}),
        node("a", "split", {"source": {"jsonl": "$a.file"}}),
        node("a", "split", {"source": {"csv": {"file": "a.csv", "header": "{{ $a.header }}"}}}),
        node("a", "split", {"source": {"sql": {"query": "SELECT 1 AS id", "key": "id", "params": [1]}}}),
        node("a", "split", {"source": {"pages": {"url": "http://x", "page": "p", "timeout": "5"}}}),
        log("a", pool="gpu_1"),
        log("a", pool=""),
        {"id": "t", "type": "ManualTrigger"},
    ],
)
def test_it_takes_what_is_right(part: dict[str, Any], validator: Draft202012Validator) -> None:
    assert errors(validator, part) == []


@pytest.mark.parametrize(
    "part",
    [
        node("a", "htpt"),
        log("a", pool="dead"),
        log("a", pool="a.b"),
        node("a b", "log", {"message": "x"}),
        node("a", "log"),
        {"id": "a", "type": "log"},
        {"id": "a"},
        node("a", "wait", {"amount": "soon"}),
        node("a", "wait", {"unit": "hors"}),
        node("a", "merge", {"wait_mode": "{{ $a }}"}),
        node("a", "conditional", {"expression": {}}),
        node("a", "aggregator", {"reduce": {"s": {"op": "summ"}}}),
        log("a", error={"type": "halted"}),
        log("a", credentials={"id": "k", "values": {}}),
        log("a", retry={"attempts": 0}),
        edge("e", "a", "b", is_error="no"),
    ],
)
def test_it_refuses_what_is_wrong(part: dict[str, Any], validator: Draft202012Validator) -> None:
    assert errors(validator, log("other"), part) != []


GRAPHS = [
    file
    for file in (*sorted(EXAMPLES.glob("*.json")), *sorted(EXAMPLES.glob("*.yaml")))
    if "kind: Playbook" not in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("file", GRAPHS, ids=lambda file: file.name)
def test_it_takes_the_examples(file: Path, validator: Draft202012Validator) -> None:
    assert [e.message for e in validator.iter_errors(load(file.read_bytes(), file.name).value)] == []


def test_every_type_describes_itself(registry: Registry) -> None:
    for name in registry.names():
        type = registry.get(name)
        assert type is not None
        schema = parameters_schema(type)
        assert schema["title"] == name
        assert schema["description"]
        assert all("description" in part for part in schema["properties"].values()), name


def test_defaults_are_shown(registry: Registry) -> None:
    type = registry.get("http")
    assert type is not None
    assert parameters_schema(type)["properties"]["timeout"]["default"] == 30


def test_a_type_with_renamed_and_made_fields() -> None:
    import msgspec

    class Mail(NodeType, kw_only=True):
        """Send."""

        sender: str = msgspec.field(name="from")
        tags: list[str] = msgspec.field(default_factory=list)

    Mail.name = "mail"
    schema = parameters_schema(Mail)
    assert schema["required"] == ["from"]
    assert set(schema["properties"]) == {"from", "tags"}
