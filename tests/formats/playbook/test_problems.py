"""Everything that is wrong with a playbook, at once, each with its line."""

from __future__ import annotations

import pytest

from rune.cli.types import node_types
from rune.core.errors import DefinitionError
from rune.formats.definition import examine
from rune.settings import Settings
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
        ("workflow: [{step: a, tool: null, next: null}]", "E045"),
        ("workflow: [{step: a, tool: {kind: noop}, case: [{when: x, then: []}]}]", "E046"),
        ("workflow: [{step: a, tool: []}]", "E045"),
        ("workflow: [{step: a, tool: [{one: {kind: noop}, two: {kind: noop}}]}]", "E045"),
        ("workflow: [{step: a, tool: [{one: {kind: noop}}, {one: {kind: noop}}]}]", "E042"),
        ("workflow: [{step: a, tool: {kind: noop}}, {step: a, tool: {kind: noop}}]", "E042"),
        ("workflow: [{step: a, tool: {url: x}}]", "E011"),
        ("workflow: [{step: a, tool: {kind: htpp, url: x}}]", "E044"),
        ("workflow: [{step: a, tool: {kind: http, url: x, methd: GET}}]", "E012"),
        ("workflow: [{step: a, tool: {kind: python}}]", "E013"),
        ("workflow: [{step: a, tool: {kind: noop}, next: b}]", "E041"),
        ("workflow: [{step: a, tool: {kind: noop}, next: ['']}]", "E041"),
        ("executor: {kind: cloud}\nworkflow: [{step: a, tool: {kind: noop}}]", "E040"),
        ("executor: {profile: cloud}\nworkflow: [{step: a, tool: {kind: noop}}]", "E040"),
        ("executor: {spec: {fanout: {max_shards: 0}}}\nworkflow: [{step: a, tool: {kind: noop}}]", "E043"),
        ("workflow: [{step: a, spec: {fanout: {reducers: {x: mean}}}, tool: {kind: noop}}]", "E049"),
        ("executor: {spec: {fanout: {max_concurent: 3}}}\nworkflow: [{step: a, next: []}]", "W009"),
        ("workflow: [{step: a, spec: {lease: {tl: 3}}, next: []}]", "W009"),
        ("executor: {spec: {entry_step: b}}\nworkflow: [{step: a, tool: {kind: noop}}]", "E041"),
        ("executor: {spec: {final_step: b}}\nworkflow: [{step: a, tool: {kind: noop}}]", "E041"),
        ("workflow: [{step: a, spec: {next_mode: any}, tool: {kind: noop}}]", "E041"),
        ("workflow: [{step: a, loop: {in: [1]}, tool: {kind: noop}}]", "E043"),
        ("workflow: [{step: a, loop: {iterator: i}, tool: {kind: noop}}]", "E043"),
        ("workflow: [{step: a, loop: {in: [1], iterator: i, spec: {max_in_flight: 0}}, next: []}]", "E043"),
        ("workflow: [{step: a, tool: {kind: noop, case: []}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{do: fail}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: yes, do: jump}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: yes, do: jump, to: b}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: yes, do: jump, to: [b]}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: yes, do: stop}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{else: {}}, {expr: yes}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{else: {}, expr: yes}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{else: {}, do: fail}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: null, do: fail}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{else: {set_ctx: text}}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{expr: yes, do: retry, attempts: 0}]}}]", "E046"),
        ("workflow: [{step: a, tool: {kind: noop, eval: [{else: {set_shared: {n: 1}}}]}}]", "E047"),
        (
            "workflow: [{step: a, loop: {in: [1], iterator: i}, "
            "tool: {kind: noop, eval: [{else: {set_shared: {n: 1}}}]}}]",
            "E047",
        ),
        ("workbook: [{name: t, kind: nop}]\nworkflow: [{step: a, next: []}]", "E044"),
        ("workbook: [{name: t, code: x}]\nworkflow: [{step: a, next: []}]", "E011"),
        ("workbook: [{name: t, kind: noop}, {name: t, kind: noop}]\nworkflow: [{step: a, next: []}]", "E042"),
        ("workflow: [{step: a, tool: {kind: workbook, name: t}}]", "E044"),
        ("workflow: [{step: a, when: [1], tool: {kind: noop}}]", "E010"),
        ("workflow: [{step: a, when: workload.n > 3, tool: {kind: noop}}]", "W010"),
        ("executor: {spec: {final_step: a}}\nworkflow: [{step: a, tool: {kind: noop}, next: a}]", "W003"),
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


def test_what_steps_share_is_told_once() -> None:
    assert found("""executor: {spec: {loop_mode: fanout, fanout: {max_shards: 0, key: "{{ iter. }}"}}}
workbook:
  - {name: bad, tool: {kind: noop, eval: [{expr: "{{ 1 }}", do: stop}]}}
workflow:
  - {step: a, loop: {in: [1], iterator: i}, tool: {kind: workbook, name: bad}, next: b}
  - {step: b, loop: {in: [1], iterator: i}, tool: {kind: workbook, name: bad}}
""") == [("E043", 1), ("E015", 1), ("E046", 3)]


def test_a_step_that_never_runs_is_looked_at_too() -> None:
    assert found("""workflow:
  - {step: a, tool: {kind: noop}}
  - {step: b, tool: {kind: pyton, code: x}}
""") == [("W004", 3), ("E044", 3)]


def test_a_write_in_the_workbook_is_refused_where_it_stands() -> None:
    assert found("""workbook:
  - name: count
    tool:
      kind: noop
      eval: [{else: {do: continue, set_vars: {n: 1}}}]
workflow:
  - {step: a, spec: {loop_mode: fanout}, loop: {in: [1], iterator: i}, tool: {kind: workbook, name: count}}
""") == [("E047", 5)]


@pytest.mark.parametrize("kind", ["", "kind: Workbook\n"])
def test_a_document_that_does_not_say_it_is_a_playbook_is_refused(kind: str) -> None:
    text = whole("workflow: [{step: a, tool: {kind: noop}}]").replace("kind: Playbook\n", kind)
    with pytest.raises(DefinitionError, match="kind"):
        compiled(text)


def test_a_playbook_that_lacks_its_head_is_told_so() -> None:
    _, _, problems = examine(
        "workflow: [{step: a, tool: {kind: noop}}]", "playbook.yaml", node_types(Settings())
    )
    assert [problem.message for problem in problems] == [
        "the playbook has no 'apiVersion'",
        "the playbook has no 'kind'",
        "the playbook's metadata has no 'name'",
    ]


def test_a_version_of_tomorrow_is_refused() -> None:
    text = whole("workflow: [{step: a, tool: {kind: noop}}]").replace("noetl.io/v2", "noetl.io/v3")
    with pytest.raises(DefinitionError, match="E040"):
        compiled(text)


def test_the_place_is_that_of_the_word() -> None:
    (problem,) = problems_of("workflow: [{step: a, tool: {kind: noop}, next: [{when: yes, step: b}]}]")
    assert (problem.column, problem.hint) == (67, "there are a")


def test_the_expressions_of_an_unknown_tool_are_looked_at() -> None:
    text = "workflow: [{step: a, tool: {kind: shell, run: '{{ 1 + }}', code: '{{ 1 + }}'}}]"
    kind, expression = problems_of(text)
    assert (kind.code, expression.code) == ("E044", "E015")
    assert kind.hint is not None
    assert "postgres, python" in kind.hint


def test_a_misspelt_kind_is_suggested() -> None:
    (problem,) = problems_of("workflow: [{step: a, tool: {kind: htpp, url: x}}]")
    assert problem.hint == "did you mean 'http'?"
