"""`rune validate`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Definition, Rune
from tests.cli.definitions import log


def test_a_good_file(rune: Rune, definition: Definition) -> None:
    done = rune("validate", definition(log("a", "x")))
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 file: no errors, no warnings\n", "")


def test_all_problems_of_all_files_with_place_and_caret(rune: Rune, tmp_path: Path) -> None:
    nodes = ['{"id": "a", "type": "logg"},', '{"id": "b", "type": "log"}']
    (tmp_path / "a.json").write_text("\n  ".join(['{"nodes": [', *nodes, "]}"]))
    (tmp_path / "b.json").write_text('{"nodes": [}')
    done = rune("validate", "a.json", "b.json", "absent.json")
    assert done.returncode == 2
    assert (
        "a.json:2:23 error[E016]: unknown node type 'logg'; did you mean 'log'?\n"
        '      {"id": "a", "type": "logg"},\n'
        "                          ^\n"
    ) in done.stdout
    assert "a.json:3" in done.stdout
    assert "b.json:1:12 error[E002]" in done.stdout
    assert "cannot read absent.json: No such file or directory" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 files: 4 errors, no warnings"


def test_a_warning_fails_only_when_asked_to(rune: Rune, definition: Definition) -> None:
    flow = definition(log("a", "x"), {"id": "m", "type": "merge"})
    done = rune("validate", flow)
    assert done.returncode == 0
    assert "warning[W002]" in done.stdout
    assert done.stdout.endswith("1 file: no errors, 1 warning\n")
    assert rune("validate", "--strict", flow).returncode == 2


def test_standard_input(rune: Rune) -> None:
    flow = json.dumps({"nodes": [log("a", "x")]})
    assert rune("validate", "-", input=flow).returncode == 0
    yaml = "nodes:\n- {id: a, type: log, parameters: {message: x}}"
    assert rune("validate", "-", input=yaml).returncode == 0


def test_no_file_is_a_usage_error(rune: Rune) -> None:
    assert rune("validate").returncode == 2


def test_modules_that_cannot_be_imported(rune: Rune, definition: Definition) -> None:
    done = rune("validate", "--modules", "no_such_module", definition(log("a", "x")))
    assert done.returncode == 2
    assert "the module 'no_such_module' with node types cannot be imported" in done.stderr
