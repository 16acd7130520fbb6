"""Pictures of workflows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rune.core.registry import Registry
from rune.core.workflow import Workflow
from rune.formats.drawing import mermaid, text
from rune.formats.graph import compile_workflow
from tests.formats.definitions import edge, flow, log, node


@pytest.fixture
def orders(registry: Registry) -> Workflow:
    """For every user, for every order: two splits, a condition and a merge inside."""
    parts = [
        node("start", "ManualTrigger"),
        node("users", "split", {"input_array": "$trigger.users"}, name='Each "user" <b>'),
        node("orders", "split", {"input_array": "$item.orders"}),
        node(
            "big", "conditional", {"expression": "$item.total > 3", "true_edge_id": "t", "false_edge_id": "f"}
        ),
        log("vip"),
        log("std", error={"type": "ignore"}),
        node("join", "merge"),
        node("of_user", "aggregator"),
        node("of_all", "aggregator", error={"type": "branch", "error_edge": "oops"}),
        log("report"),
        log("sorry"),
    ]
    ways = "start-users users-orders orders-big vip-join std-join join-of_user of_user-of_all of_all-report"
    edges = [edge(way, *way.split("-")) for way in ways.split()]
    edges += [
        edge("t", "big", "vip"),
        edge("f", "big", "std", label="small"),
        edge("oops", "of_all", "sorry"),
    ]
    return compile_workflow(json.loads(flow(*parts, *edges)), registry)


def test_text(orders: Workflow) -> None:
    assert text(orders).splitlines() == [
        "start (ManualTrigger)",
        'users "Each "user" <b>" (split)',
        "│ orders (split)",
        "│ │ big (conditional)",
        "│ │ ├─ true:",
        "│ │ │  vip (log)",
        "│ │ │  → join",
        "│ │ ├─ false: small:",
        "│ │ │  std (log) [errors ignored]",
        "│ │ │  → join",
        "│ │ join (merge) ⇐ vip, std",
        "│ of_user (aggregator)",
        "of_all (aggregator)",
        "├─ also:",
        "│  report (log)",
        "├─ error:",
        "│  sorry (log)",
    ]


def test_mermaid(orders: Workflow) -> None:
    lines = mermaid(orders).splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n1[/"Each #quot;user#quot; #lt;b#gt;<br/>split"\\]' in lines
    assert lines.count("  end") == 1
    assert lines.count("    end") == 1
    assert '      n6{{"join<br/>merge"}}' in lines
    assert '  n3 -->|"false: small"| n5' in lines
    assert '  n8 -.->|"error"| n10' in lines
    assert lines.index("  end") < lines.index('  n8[\\"of_all<br/>aggregator"/]')


@pytest.mark.parametrize(
    "name", ['"', "a`b", "x|y", "end", "<script>", "#quot;", "[x]{y}", "a\nb", "\\", "]]"]
)
def test_labels_cannot_break_the_picture(name: str, registry: Registry) -> None:
    made = compile_workflow(json.loads(flow(log("a", name=name))), registry)
    line = mermaid(made).splitlines()[1]
    label = line.removeprefix('  n0["').removesuffix('<br/>log"]')
    assert not set(label.replace("<br/>", "")) & set('"<>[]{}|`\\\n')
    assert len(text(made).splitlines()) == 1


def test_every_node_is_drawn_once(registry: Registry) -> None:
    for seed in range(30):
        parts = random_parts(seed)
        made = compile_workflow(json.loads(flow(*parts)), registry)
        drawn = [line.lstrip("│ ├─").split()[0] for line in text(made).splitlines() if "(" in line]
        assert sorted(drawn) == sorted(made.nodes)


def random_parts(seed: int) -> list[dict[str, Any]]:
    from random import Random

    rng = Random(seed)
    size = rng.randint(2, 12)
    parts: list[dict[str, Any]] = [log(f"n{i}") for i in range(size)]
    for i in range(1, size):
        for j in sorted(rng.sample(range(i), k=min(i, rng.randint(0, 2)))):
            parts.append(edge(f"e{j}-{i}", f"n{j}", f"n{i}"))
    return parts


def test_a_deep_chain_of_conditions_needs_no_recursion(registry: Registry) -> None:
    size = 2000
    parts = [node(f"c{i}", "conditional", {"expression": "true"}) for i in range(size)]
    parts += [edge(f"e{i}", f"c{i}", f"c{i + 1}", port="true") for i in range(size - 1)]
    made = compile_workflow(json.loads(flow(*parts)), registry)
    assert len(text(made).splitlines()) == 2 * size - 1
