"""Whatever a definition holds, it is compiled, or refused with problems that can be shown."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rune.core.registry import Registry
from rune.formats.drawing import mermaid, text
from rune.formats.graph import examine
from rune.formats.report import CODES, render
from tests.formats.definitions import edge, log, node

CONDITION = {"expression": "$a.x > 1", "true_edge_id": "t", "false_edge_id": "f"}
RULES = [{"value": "$a.x", "operator": "eq", "compare": 1}]

SEED: dict[str, Any] = {
    "workflow_id": "w",
    "name": "All of it",
    "nodes": [
        node("start", "ManualTrigger"),
        log("a", "{{ $trigger.x }}", retry={"attempts": 2}, credentials={"id": "k"}),
        node("if", "conditional", CONDITION, error={"type": "branch", "error_edge": "err"}),
        node("sw", "switch", {"rules": RULES, "routes": ["s0", "s1"]}),
        node("each", "split", {"input_array": "$a.list", "key": "$item.id"}, name="Each one"),
        node("h", "http", {"url": "{{ $item.url }}", "headers": {"x": "1"}, "retry": "2"}),
        node("all", "aggregator", {"collect": "$h.body", "reduce": {"n": {"op": "sum", "value": "$item.n"}}}),
        node("m", "merge", {"wait_mode": "wait_for_n", "n": 2}),
        log("oops", '{{ $node["Each one"].count }}'),
    ],
    "edges": [
        edge("1", "start", "a"),
        edge("2", "a", "if"),
        edge("t", "if", "sw"),
        edge("f", "if", "m"),
        edge("err", "if", "oops", is_error=True),
        edge("s0", "sw", "each"),
        edge("s1", "sw", "m"),
        edge("3", "each", "h"),
        edge("4", "h", "all"),
        edge("5", "all", "m"),
    ],
}

words = st.sampled_from(
    [
        "",
        "a",
        "m",
        "each",
        "split",
        "merge",
        "aggregator",
        "error",
        "branch",
        "{{ $a }}",
        "{{",
        "$a",
        "1",
        "t",
        "\ud7ff",
    ]
)
leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | words | st.text(max_size=5)
values = st.recursive(
    leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(words, v, max_size=3), max_leaves=5
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


@given(seed=st.integers(0, 2**32), changes=st.lists(st.none() | values, min_size=0, max_size=4))
@example(seed=0, changes=[])
def test_a_damaged_definition_is_compiled_or_refused(
    seed: int, changes: list[Any], registry: Registry
) -> None:
    rng = Random(seed)
    data = deepcopy(SEED)
    for change in changes:
        container, key = rng.choice(places(data))
        if rng.random() < 0.3:
            del container[key]
        elif rng.random() < 0.3:
            container[key] = deepcopy(rng.choice(places(SEED))[0])
        else:
            container[key] = change
        if not data:
            break
    document, flow, problems = examine(json.dumps(data, indent=1), "f.json", registry)
    assert (flow is None) == any(problem.severity == "error" for problem in problems)
    assert all(problem.code in CODES and problem.line and problem.column for problem in problems)
    assert render(problems, document).count("[E") >= sum(problem.severity == "error" for problem in problems)
    if flow is not None:
        assert text(flow)
        assert mermaid(flow)
        for node in flow.nodes.values():
            assert node.parameters is not None
    if not changes:
        assert flow is not None


@given(text=st.text(max_size=60) | st.binary(max_size=60), suffix=st.sampled_from(["json", "yaml", "txt"]))
def test_any_text_is_loaded_or_refused(text: str | bytes, suffix: str, registry: Registry) -> None:
    document, flow, problems = examine(text, f"f.{suffix}", registry)
    assert flow is None
    assert problems
    assert render(problems, document)


@given(
    text=st.lists(
        st.sampled_from(
            [
                "a",
                ": ",
                "- ",
                "\n",
                "  ",
                "{",
                "}",
                "[",
                "]",
                ",",
                '"',
                "'",
                "&x ",
                "*x",
                "!!str ",
                "|",
                ">",
                "#",
                "<<",
                "1",
            ]
        ),
        max_size=25,
    ).map("".join)
)
def test_any_yaml_is_loaded_or_refused(text: str, registry: Registry) -> None:
    document, _, problems = examine(text, "f.yaml", registry)
    assert render(problems, document)
