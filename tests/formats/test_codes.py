"""Every code of the table, with a definition that earns it, and how the report looks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rune
from rune.core.errors import Problem
from rune.core.registry import Registry
from rune.formats.document import Document
from rune.formats.graph import examine
from rune.formats.report import CODES, render
from tests.formats.definitions import edge, flow, log, node


def doubling(levels: int) -> list[dict[str, Any]]:
    """A graph in which the number of ways doubles at each level, and a merge at its end."""
    parts: list[dict[str, Any]] = [log("n0")]
    for level in range(levels):
        a, b, n = f"a{level}", f"b{level}", f"n{level + 1}"
        parts += [log(a), log(b), log(n)]
        for src, dst in ((f"n{level}", a), (f"n{level}", b), (a, n), (b, n)):
            parts.append(edge(f"{src}-{dst}", src, dst))
    return [
        *parts,
        node("join", "merge"),
        log("other"),
        edge("m", f"n{levels}", "join"),
        edge("o", "other", "join"),
    ]


SPLIT = node("each", "split", {"input_array": "$trigger.users"})

CASES: dict[str, tuple[str | bytes, str, tuple[int, int]]] = {
    "E001": (b'{"a": "\xff"}', "byte 0xff", (1, 8)),
    "E002": ('{"nodes": [],}', "a comma before '}'; remove the comma", (1, 13)),
    "E003": ("nodes: [", "did not find expected node content", (1, 9)),
    "E004": ('{"nodes": [],\n"nodes": []}', "'nodes' stands twice in one object, first in line 1", (2, 1)),
    "E005": ("", "empty", (1, 1)),
    "E006": ("[]", "must be an object, not a list", (1, 1)),
    "E007": ('{"notes": ' + "[" * 200 + "]" * 200 + "}", "more than 100 levels", (1, 110)),
    "E008": ('{"notes": NaN}', "NaN is not a number", (1, 11)),
    "E009": ("nodes: !!set {}", "!!set", (1, 8)),
    "E010": ('{"nodes": {}}', "'nodes' must be a list, not an object", (1, 11)),
    "E011": ('{"nodes": [{"id": "a"}]}', "node 'a' has no 'type'", (1, 12)),
    "E012": (
        flow(node("a", "http", {"url": "http://x", "bdy": 1})),
        "unknown parameter 'bdy' of http; did you mean 'body'?",
        (8, 9),
    ),
    "E013": (flow(node("a", "log")), "parameter 'message' of log is missing", (6, 21)),
    "E014": (
        flow(node("a", "wait", {"amount": "soon"})),
        "parameter 'amount' of wait must be a number, at least 0, not the text \"soon\"",
        (7, 19),
    ),
    "E015": (flow(log("a", "{{ 1 + }}")), "expected a value", (7, 28)),
    "E016": (flow(node("a", "htpt")), "unknown node type 'htpt'; did you mean 'http'?", (5, 15)),
    "E017": (flow(log("a b")), "write 'a-b'", (4, 13)),
    "E018": (flow(log("a"), log("a")), "two nodes have the id 'a'", (11, 13)),
    "E019": (
        flow(log("a"), log("b"), edge("e", "a", "b"), edge("e", "a", "b")),
        "two edges have the id 'e'",
        (25, 13),
    ),
    "E020": (
        flow(log("fetch"), log("b"), edge("e", "fetsh", "b")),
        "the 'src' of edge 'e' names no node: 'fetsh'; did you mean 'fetch'?",
        (21, 14),
    ),
    "E021": (flow(log("a"), edge("e", "a", "a")), "edge 'e' leads from 'a' to itself", (12, 5)),
    "E022": (
        flow(log("s"), log("a"), log("b"), edge("1", "s", "a"), edge("2", "a", "b"), edge("3", "b", "a")),
        "a → b → a",
        (10, 5),
    ),
    "E023": (flow(node("t", "ManualTrigger")), "nothing follows the trigger", (2, 12)),
    "E024": (
        flow(
            node("if", "conditional", {"expression": "true", "true_edge_id": "yess"}),
            log("b"),
            edge("yes", "if", "b"),
        ),
        "'true_edge_id' names 'yess', which is not an edge out of 'if'; did you mean 'yes'?",
        (8, 25),
    ),
    "E025": (flow(log("a", error={"type": "hlt"})), "did you mean 'halt'?", (10, 17)),
    "E026": (flow(log("a", error={"type": "branch"})), "has no error edge", (10, 17)),
    "E027": (flow(node("g", "aggregator")), "'g' gathers the items of a split, but stands in none", (3, 5)),
    "E028": (
        flow(SPLIT, *(node(id, "aggregator") for id in "xy"), edge("1", "each", "x"), edge("2", "each", "y")),
        "'x' and 'y' both gather the items of split 'each'",
        (15, 5),
    ),
    "E029": (
        flow(log("s"), SPLIT, log("b"), edge("1", "s", "each"), edge("2", "s", "b"), edge("3", "each", "b")),
        "by s → b (in no split) and by s → each → b (in 'each')",
        (17, 5),
    ),
    "E030": (flow(*doubling(20)), "would wait for 1,048,577 arrivals", (430, 5)),
    "E031": (
        flow(log("a", credentials={"id": "k", "values": {"token": "s3cret"}})),
        "must not carry a credential's values",
        (11, 19),
    ),
    "E032": (flow(log("a", retry={"attempts": 0})), "'retry.attempts' must be an integer", (10, 21)),
    "E033": (
        flow(
            node("if", "conditional", {"expression": "true", "true_edge_id": "e"}),
            log("b"),
            edge("e", "if", "b", is_error=True),
        ),
        "both an error edge and at port 'true'",
        (20, 5),
    ),
    "E034": (
        flow(log("a"), log("b"), node("m", "merge", {"n": "{{ $a.n }}", "wait_mode": "wait_for_n"}),
             edge("1", "a", "m"), edge("2", "b", "m")),
        "must be known before it runs",
        (20, 21),
    ),
    "E035": (
        flow(log("a"), log("b"), node("m", "merge", {"n": 3, "wait_mode": "wait_for_n"}),
             edge("1", "a", "m"), edge("2", "b", "m")),
        "waits for 3 arrivals, but at most 2 can come",
        (20, 21),
    ),
    "E036": (flow(log("a", pool="dead")), "cannot be a pool's name; use letters, digits", (9, 15)),
    "W001": (
        flow(node("a", "log", {"message": "x", "colour": 1})),
        "unknown parameter 'colour' of log is ignored",
        (8, 9),
    ),
    "W002": (flow(log("a"), node("m", "merge"), edge("1", "a", "m")), "only one edge into it", (10, 5)),
    "W003": (
        flow(log("a"), log("b"), edge("1", "a", "b", is_error=True)),
        "edge '1' is never followed: 'a' does not branch on errors",
        (19, 5),
    ),
    "W004": (
        flow(node("t", "ManualTrigger"), log("a"), log("b"), edge("1", "t", "a")),
        "nothing leads to 'b'",
        (15, 5),
    ),
    "W005": (
        flow(log("fetch"), log("b", "see {{ $fetsh.body }}"), edge("1", "fetch", "b")),
        "no node is called 'fetsh'; did you mean $fetch?",
        (14, 28),
    ),
    "W006": (flow(log("a"), log("b", "$a.message")), "'a' has never run when 'b' does", (14, 20)),
    "W007": (
        flow(log("a", name="Say"), log("b", name="Say")),
        "'Say' names 'a' and 'b'",
        (17, 15),
    ),
    "W008": (
        flow(node("t", "ManualTrigger"), log("a"), log("b"), edge("1", "t", "b"), edge("2", "a", "t")),
        "trigger 't' has edges into it",
        (3, 5),
    ),
    "W009": (flow(log("a", trigerr=True)), "'trigerr' is ignored; did you mean 'trigger'?", (9, 7)),
}  # fmt: skip


# Those of playbooks, E040 to E049 and W010, are in tests/formats/playbook; those of calls in test_linking.py.
@pytest.mark.parametrize("code", [code for code in CODES if not code.startswith(("E04", "E05", "W010"))])
def test_each_code_has_a_definition_that_earns_it(code: str, registry: Registry) -> None:
    text, said, place = CASES[code]
    name = "f.yaml" if code in ("E003", "E009") else "f.json"
    document, workflow, problems = examine(text, name, registry)
    problem = next(problem for problem in problems if problem.code == code)
    assert said in f"{problem.message}; {problem.hint}"
    assert (problem.line, problem.column) == place
    assert problem.severity == ("error" if code[0] == "E" else "warning")
    assert (workflow is None) == any(p.severity == "error" for p in problems)
    head = f"{name}:{place[0]}:{place[1]} {problem.severity}[{code}]: "
    assert head in render(problems, document)


@pytest.mark.parametrize("code", sorted(CASES))
def test_one_mistake_gives_one_problem(code: str, registry: Registry) -> None:
    _, _, problems = examine(CASES[code][0], "f.yaml" if code in ("E003", "E009") else "f.json", registry)
    assert {problem.code for problem in problems if problem.severity == "error"} <= {code}
    assert {problem.code for problem in problems if problem.severity == "warning"} <= {code, "W004"}


def test_every_code_in_the_source_is_in_the_table() -> None:
    source = Path(rune.__file__).parent
    used = {
        code
        for folder in ("core", "formats")
        for file in (source / folder).rglob("*.py")
        for code in re.findall(r'"([EW]\d{3})"', file.read_text())
    }
    assert used == set(CODES)


def test_the_report_shows_each_line_with_a_caret(registry: Registry) -> None:
    text = flow(node("a", "http", {"url": "http://x", "bdy": 1}), log("b", "{{ 1 + }}"))
    document, _, problems = examine(text, "flow.json", registry)
    assert render(reversed(problems), document) == (
        "flow.json:8:9 error[E012]: unknown parameter 'bdy' of http; did you mean 'body'?\n"
        '            "bdy": 1\n'
        "            ^\n"
        "flow.json:15:28 error[E015]: expected a value, found the end\n"
        '            "message": "{{ 1 + }}"\n'
        "                               ^"
    )


def test_a_long_line_is_cut_around_the_caret() -> None:
    document = Document("f.json", "x" * 500 + "!" + "y" * 500, {})
    problem = Problem("E002", "odd", line=1, column=501)
    _, source, caret = render([problem], document).split("\n")
    assert len(source) <= 124
    assert source[caret.index("^")] == "!"
    assert source.strip().startswith("…")
    assert source.endswith("…")


def test_a_tab_does_not_move_the_caret() -> None:
    _, source, caret = render([Problem("E002", "odd", line=1, column=3)], Document("f", "\t\t!", {})).split(
        "\n"
    )
    assert source[caret.index("^")] == "!"


def test_a_secret_is_shown_nowhere(registry: Registry) -> None:
    text = json.dumps(
        {"nodes": [log("a b", credentials={"id": "k", "values": {"token": "s3cret"}}), node("c", "htpt")]}
    )
    document, _, problems = examine(text, "f.json", registry)
    assert {"E016", "E017", "E031"} == {problem.code for problem in problems}
    assert "s3cret" not in render(problems, document)
