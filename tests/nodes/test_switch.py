"""The switch node."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.errors import DefinitionError
from rune.core.outcome import Done
from rune.nodes.switch import Switch
from tests.nodes.fakes import FakeContext, made, output, run

RULES = [
    {"value": "$t.kind", "operator": "==", "compare": "order"},
    {"value": "$t.size", "operator": "gt", "compare": "10"},
    {"value": "$t.tags", "operator": "contains", "compare": "x"},
]


@pytest.mark.parametrize(
    ("value", "port"),
    [
        ({"kind": "order", "size": 99, "tags": []}, "0"),
        ({"kind": "bill", "size": 11, "tags": []}, "1"),
        ({"kind": "bill", "size": "11", "tags": []}, "1"),
        ({"kind": "bill", "size": 1, "tags": ["x"]}, "2"),
        ({"kind": "bill", "size": 1, "tags": []}, "fallback"),
    ],
)
async def test_first_rule_that_holds(value: dict[str, Any], port: str) -> None:
    outcome = await run(Switch, FakeContext({"$t": value}), rules=RULES)
    assert isinstance(outcome, Done)
    assert outcome.port == port


async def test_output_names_the_rule() -> None:
    context = FakeContext({"$t": {"kind": "order", "size": 1, "tags": []}})
    assert await output(Switch, context, rules=RULES) == {
        "output_index": 0,
        "matched_rule": {"value": "order", "operator": "==", "compare": "order"},
    }
    context = FakeContext({"$t": {"kind": "", "size": 1, "tags": []}})
    assert await output(Switch, context, rules=RULES) == {"output_index": 3, "fallback": True}


def test_routes_mean_ports() -> None:
    parameters = {"rules": RULES, "routes": ["a", "b", "c", "d"]}
    assert Switch.edge_ports(parameters) == {
        ("routes", 0): "0",
        ("routes", 1): "1",
        ("routes", 2): "2",
        ("routes", 3): "fallback",
    }
    assert Switch.edge_ports({"rules": "{{ $t }}"}) == {}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rules": []}, "rules"),
        ({"rules": [{"value": 1, "compare": 1}], "routes": ["a", "b", "c"]}, "3 `routes` for 1 `rules`"),
        ({"rules": [{"value": 1, "operator": "eqq", "compare": 1}]}, "did you mean"),
        ({}, "rules"),
    ],
)
def test_wrong_rules_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        made(Switch, FakeContext({"$t": {"kind": "", "size": 1, "tags": []}}), parameters)
