"""`rune nodes`, `rune schema`, `rune graph`: what can be known without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rune.cli import main
from rune.nodes import load_builtin
from tests.cli.conftest import Definition, Rune
from tests.cli.definitions import TWICE, log


def test_every_type_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == sorted(type.name for type in load_builtin())


def test_one_type_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "http"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("http  Send an HTTP request")
    assert "  url  text" in shown
    assert 'default "GET"' in shown
    assert "Ports  out, error" in shown


def test_inner_objects_are_described_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "edit"]) == 0
    assert "assignments[].name" in capsys.readouterr().out


def test_an_unknown_type_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "spilt"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: there is no node type 'spilt'; did you mean 'split'?\n"


def test_types_of_ones_own(rune: Rune, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TWICE)
    for done in (rune("nodes", "--modules", "mine"), rune("nodes", RUNE_MODULES="mine")):
        assert "twice             Double it." in done.stdout


def test_the_schema_is_json_and_knows_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {f"parameters.{type.name}" for type in load_builtin()} <= set(schema["$defs"])


def test_a_workflow_as_text_and_as_mermaid(rune: Rune, definition: Definition) -> None:
    flow = definition(log("first", 1), log("second", 2))
    assert rune("graph", flow).stdout == "first (log)\nsecond (log)\n"
    assert rune("graph", "--format", "mermaid", flow).stdout.startswith("flowchart TD\n")


def test_a_wrong_workflow_is_not_drawn(rune: Rune, definition: Definition) -> None:
    done = rune("graph", definition({"id": "a", "type": "logg"}))
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[E016]" in done.stderr
