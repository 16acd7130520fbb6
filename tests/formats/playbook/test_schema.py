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
from tests.playbooks.playing import whole

ROOT = Path(__file__).parents[3]
PLAYBOOKS = [*sorted((ROOT.parent / "shared" / "playbooks").glob("*.yaml")), ROOT / "examples" / "sweep.yaml"]


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
    ],
)
def test_what_is_refused_does_not_fit(text: str, validator: Any) -> None:
    assert list(validator.iter_errors(yaml.safe_load(whole(text)))) != []
