"""Warnings about names that lead nowhere, and none about those that lead somewhere."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from rune.core.errors import Problem
from rune.core.registry import Registry
from rune.formats.graph import check
from tests.formats.definitions import edge, flow, log, node


def warnings(registry: Registry, *parts: dict[str, Any]) -> list[Problem]:
    made, problems = check(json.loads(flow(*parts)), registry)
    assert made is not None, problems
    return [problem for problem in problems if problem.code in ("W005", "W006")]


def test_what_the_context_always_has_is_known(registry: Registry) -> None:
    names = "trigger input json item items index error execution workflow previous"
    assert warnings(registry, log("a", [f"{{{{ ${name} }}}}" for name in names.split()])) == []


def test_a_dollar_in_plain_text_is_no_reference(registry: Registry) -> None:
    assert warnings(registry, log("a", "costs $5, or $USD 5")) == []


def test_a_misspelt_bare_reference_is_noticed(registry: Registry) -> None:
    [found] = warnings(registry, log("fetch"), log("b", "$fetsh.body"), edge("1", "fetch", "b"))
    assert (found.path, found.hint) == (("nodes", 1, "parameters", "message"), "did you mean $fetch?")


def test_an_unknown_name_in_an_expression_is_noticed_wherever_it_stands(registry: Registry) -> None:
    condition = node("c", "conditional", {"expression": "1 < 2 and $zzz.ok"})
    [found] = warnings(registry, condition)
    assert found.path == ("nodes", 0, "parameters", "expression")
    assert found.offset == 10
    assert "given it in its context" in str(found.hint)


def test_an_id_with_a_dash_is_shown_how_to_be_named(registry: Registry) -> None:
    [found] = warnings(
        registry, log("each-user"), log("b", "{{ $each-user.x }}"), edge("1", "each-user", "b")
    )
    assert found.hint == 'did you mean $node["each-user"]?'


def test_a_node_that_runs_later_or_elsewhere_has_nothing_yet(registry: Registry) -> None:
    parts = [
        log("s"),
        log("a", "{{ $b.message }} {{ $s.message }}"),
        log("b"),
        edge("1", "s", "a"),
        edge("2", "s", "b"),
    ]
    [found] = warnings(registry, *parts)
    assert found.message == "'b' has never run when 'a' does"
    assert found.offset == 3
    [found] = warnings(registry, log("a", '{{ $node["a"].message }}'))
    assert "its own output" in found.message


def test_what_an_item_made_stays_inside_its_split(registry: Registry) -> None:
    chain = [
        node("each", "split", {"input_array": "$trigger"}),
        log("inner"),
        node("all", "aggregator", {"collect": "$inner.message"}),
        log("after", "{{ $all.count }} {{ $each.count }} {{ $inner.message }}"),
    ]
    edges = [edge(f"e{i}", a["id"], b["id"]) for i, (a, b) in enumerate(pairwise(chain))]
    [found] = warnings(registry, *chain, *edges)
    assert found.message.startswith("what 'inner' gives stays inside split 'each'")
    assert found.path == ("nodes", 3, "parameters", "message")


def test_the_trigger_may_be_named(registry: Registry) -> None:
    assert warnings(registry, node("t", "webhook"), log("a", "{{ $t.body }}"), edge("1", "t", "a")) == []
