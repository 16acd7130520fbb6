"""Everything that is wrong with a playbook, at once, each with its line."""

from __future__ import annotations

import pytest

from rune.core.errors import DefinitionError
from tests.playbooks.playing import HEAD, compiled, problems_of, whole

LINES = HEAD.count("\n")


def found(text: str) -> list[tuple[str, int]]:
    return [(problem.code, (problem.line or 0) - LINES) for problem in problems_of(text)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("workflow: []", "E011"),
        ("vars: {a: 1}\nworkflow: [{step: a, tool: {kind: noop}}]", "E048"),
        ("workflow: [{step: a, vars: {}, tool: {kind: noop}}]", "E048"),
        ("workflow: [{step: a}]", "E045"),
        ("workflow: [{step: a, tool: []}]", "E045"),
        ("workflow: [{step: a, tool: [{one: {kind: noop}, two: {kind: noop}}]}]", "E045"),
        ("workflow: [{step: a, tool: [{one: {kind: noop}}, {one: {kind: noop}}]}]", "E042"),
        ("workflow: [{step: a, tool: {kind: noop}}, {step: a, tool: {kind: noop}}]", "E042"),
        ("workflow: [{step: a, tool: {url: x}}]", "E011"),
        ("workflow: [{step: a, tool: {kind: htpp, url: x}}]", "E044"),
        ("workflow: [{step: a, tool: {kind: http, url: x, methd: GET}}]", "E012"),
        ("workflow: [{step: a, tool: {kind: python}}]", "E013"),
        ("workflow: [{step: a, tool: {kind: noop}, next: b}]", "E041"),
        ("executor: {spec: {entry_step: b}}\nworkflow: [{step: a, tool: {kind: noop}}]", "E041"),
        ("executor: {spec: {final_step: b}}\nworkflow: [{step: a, tool: {kind: noop}}]", "E041"),
        ("workflow: [{step: a, spec: {next_mode: any}, tool: {kind: noop}}]", "E041"),
        ("workflow: [{step: a, loop: {in: [1]}, tool: {kind: noop}}]", "E043"),
        ("workflow: [{step: a, loop: {iterator: i}, tool: {kind: noop}}]", "E043"),
        ("workflow: [{step: a, loop: {in: [1], iterator: i, spec: {max_in_flight: 0}}, next: []}]", "E043"),
        ("workflow: [{step: a, tool: {kind: noop, case: []}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{do: fail}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: x, do: jump}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: x, do: jump, to: b}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: x, do: stop}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{else: {}}, {expr: x}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: x, do: retry, attempts: 0}]}}]", "E046"),
        ("workflow: [{step: a, when: '{{ 1 + }}', tool: {kind: noop}}]", "E015"),
        (
            "executor: {spec: {loop_mode: fanout, fanout: {fail_fast: true, allow_partial: true}}}\n"
            "workflow: [{step: a, loop: {in: [1], iterator: i}, tool: {kind: noop}}]",
            "E049",
        ),
    ],
)
def test_each_mistake_has_its_code(text: str, code: str) -> None:
    assert [problem.code for problem in problems_of(text)] == [code]


def test_all_problems_are_told_at_once_and_each_at_its_line() -> None:
    assert found("""workflow:
  - step: a
    tool: {kind: pyton, code: x}
    next: [b, c]
  - step: c
    loop: {in: [1]}
    tool: {kind: noop}
""") == [("E044", 3), ("E041", 4), ("E043", 6)]


def test_a_version_of_tomorrow_is_refused() -> None:
    text = whole("workflow: [{step: a, tool: {kind: noop}}]").replace("noetl.io/v2", "noetl.io/v3")
    with pytest.raises(DefinitionError, match="E040"):
        compiled(text)


def test_a_misspelt_kind_is_suggested() -> None:
    (problem,) = problems_of("workflow: [{step: a, tool: {kind: htpp, url: x}}]")
    assert problem.hint == "did you mean 'http'?"
