"""The JSON Schema for editors agrees with what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rune.cli.types import node_types
from rune.formats.playbook.schema import playbook_schema
from rune.settings import Settings
from tests.playbooks.playing import problems_of, whole

ROOT = Path(__file__).parents[3]
EXAMPLES = [ROOT / "examples" / name for name in ("sweep.yaml", "warehouse.yaml", "quotes/quote.yaml")]
PLAYBOOKS = [*sorted((ROOT.parent / "shared" / "playbooks").glob("*.yaml")), *EXAMPLES]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = playbook_schema(node_types(Settings()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("file", PLAYBOOKS, ids=lambda file: file.stem)
def test_real_playbooks_fit(file: Path, validator: Any) -> None:
    assert list(validator.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "source",
    [
        "[1, 2]",
        "'{{ workload.rows }}'",
        "{range: '{{ workload.n }}'}",
        "{lines: '{{ workload.file }}'}",
        "{csv: {file: a.csv, delimiter: ';'}}",
        "{pages: {url: 'http://x', items: rows, next: links.next, headers: {x: 1}}}",
    ],
)
def test_sources_fit(source: str, validator: Any) -> None:
    text = f"workflow: [{{step: a, loop: {{in: {source}, iterator: i}}, tool: {{kind: noop}}}}]"
    assert list(validator.iter_errors(yaml.safe_load(whole(text)))) == []


@pytest.mark.parametrize(
    "text",
    [
        "workflow: []",
        "workflow: [{step: a}]",
        "workflow: [{step: a, tool: {kind: htpp}}]",
        "workflow: [{step: a, tool: {kind: python}}]",
        "workflow: [{step: a, tool: {kind: noop, eval: [{do: fail}]}}]",
        "workflow: [{step: a, loop: {in: [1]}, tool: {kind: noop}}]",
        "workflow: [{step: a, spec: {loop_mode: far}, tool: {kind: noop}}]",
        "workflow: [{step: a, loop: {in: {jsnl: x}, iterator: i}, tool: {kind: noop}}]",
        "workflow: [{step: a, loop: {in: {sql: {query: x}}, iterator: i}, tool: {kind: noop}}]",
        "workflow: [{step: a, loop: {in: 7, iterator: i}, tool: {kind: noop}}]",
        "workflow: [{step: a, tool: {kind: noop}, case: []}]",
        "workflow: [{step: a, tool: {kind: noop, case: []}}]",
        "workflow: [{step: a, tool: {kind: noop}, next: ['']}]",
        "workflow: [{step: a, tool: {kind: http}}]",
        "workflow: [{step: a, tool: {kind: postgres, auth: x}}]",
        "workflow: [{step: a, tool: {kind: artifact}}]",
        "workflow: [{step: a, tool: {kind: workbook}}]",
        "workflow: [{step: a, spec: {pool: 'x y'}, tool: {kind: noop}}]",
        "workflow: [{step: a, tool: {kind: noop, eval: [{expr: '{{ 1 }}', do: jump}]}}]",
        "workflow: [{step: a, tool: {kind: noop, eval: [{else: {do: jump}}]}}]",
        "workflow: [{step: a, tool: {kind: noop, eval: [{else: {do: fail}, do: fail}]}}]",
        "workflow: [{step: a, tool: {kind: noop, eval: [{expr: '{{ 1 }}', dos: fail}]}}]",
        "workflow: [{step: a, tool: {kind: noop, eval: [{else: {set_ctx: [1]}}]}}]",
        "workflow: [{step: a, spec: {fanout: {allow_partial: true, fail_fast: true}}, next: []}]",
        "executor: {profile: cloud}\nworkflow: [{step: a, tool: {kind: noop}}]",
        "workbook: [{name: t}]\nworkflow: [{step: a, tool: {kind: noop}}]",
        "workbook: [{name: t, kind: nop}]\nworkflow: [{step: a, tool: {kind: noop}}]",
        "workbook: [{name: t, tool: {code: x}}]\nworkflow: [{step: a, tool: {kind: noop}}]",
    ],
)
def test_what_is_refused_does_not_fit(text: str, validator: Any) -> None:
    assert any(problem.severity == "error" for problem in problems_of(text))
    assert list(validator.iter_errors(yaml.safe_load(whole(text)))) != []
