"""`rune run`: what it prints where, and how it exits."""

from __future__ import annotations

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Definition, Rune
from tests.cli.definitions import TWICE, edit, log, wait

FAILING = {
    "id": "broken",
    "type": "edit",
    "parameters": {"assignments": [{"name": "n", "value": "many", "type": "integer"}]},
}


def leftovers(tmp_path: Path) -> list[str]:
    """The files in the state directory."""
    return sorted(path.name for path in (tmp_path / "state").rglob("*") if path.is_file())


def test_the_result_and_the_progress(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    done = rune("run", definition(edit("a", x=1), edit("b", y="{{ $a['$json'].x + 1 }}")))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"y": 2}
    lines = done.stderr.splitlines()
    assert [line.split()[1:3] for line in lines[:2]] == [["a", "success"], ["b", "success"]]
    assert lines[-1].startswith("✔ completed in ")
    assert leftovers(tmp_path) == []


def test_json_is_the_completion_message_and_nothing_else(rune: Rune, definition: Definition) -> None:
    done = rune("run", "--json", definition(edit("a", x="line\nbreak")))
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    message = json.loads(done.stdout)
    assert message["status"] == "completed"
    assert message["workflow_id"] == "flow"
    assert message["final_context"]["$a"] == {"$json": {"x": "line\nbreak"}}
    assert {"execution_id", "completed_at", "total_duration_ms"} <= set(message)


def test_json_of_a_failure(rune: Rune, definition: Definition) -> None:
    done = rune("run", "--json", "--quiet", definition(FAILING))
    assert done.returncode == 1
    message = json.loads(done.stdout)
    assert message["status"] == "halted"
    assert message["error"]["code"] == "EDIT_TYPE"
    assert done.stderr == ""


def test_quiet_is_only_the_result(rune: Rune, definition: Definition) -> None:
    done = rune("run", "--quiet", definition(log("a", "hello"), edit("b", y=2)))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"y": 2}


def test_what_a_node_logs_is_shown(rune: Rune, definition: Definition) -> None:
    flow = definition(log("a", "hello there"), log("b", "careful", level="warning"))
    assert "INFO    a: hello there" in rune("run", flow).stderr
    quiet = rune("run", "--quiet", flow).stderr
    assert "hello there" not in quiet
    assert "WARNING b: careful" in quiet


def test_several_last_nodes_give_an_object(rune: Rune, definition: Definition) -> None:
    edges = [{"id": "1", "src": "a", "dst": "b"}, {"id": "2", "src": "a", "dst": "c"}]
    done = rune("run", "-q", definition(edit("a", x=1), edit("b", y=2), edit("c", z=3), edges=edges))
    assert json.loads(done.stdout) == {"b": {"y": 2}, "c": {"z": 3}}


def test_a_failed_node_says_what_and_what_to_do(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    done = rune("run", definition(FAILING))
    assert (done.returncode, done.stdout) == (1, "")
    assert "✖ halted after" in done.stderr
    assert "node 'broken': EDIT_TYPE: cannot set 'n'" in done.stderr
    assert "    type: integer" in done.stderr
    assert "hint: " in done.stderr
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("given", ['{"n": 20}', "@input.json"])
def test_input(rune: Rune, definition: Definition, tmp_path: Path, given: str) -> None:
    (tmp_path / "input.json").write_text('{"n": 20}')
    done = rune("run", "-q", definition(edit("a", twice="{{ $trigger.n * 2 }}")), "--input", given)
    assert json.loads(done.stdout) == {"twice": 40}


def test_context_by_hand(rune: Rune, definition: Definition) -> None:
    flow = definition(edit("a", seen="$fetch.body"))
    done = rune("run", "-q", flow, "--context", '{"$fetch": {"body": [1, 2]}}')
    assert json.loads(done.stdout) == {"seen": [1, 2]}


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("--input", '{"n": }', "--input:1:7 error[E002]"),
        ("--input", '{"n": 1, "n": 2}', "--input:1:10 error[E004]"),
        ("--input", "", "--input:1:1 error[E005]: there is no JSON"),
        ("--input", "@absent.json", "cannot read absent.json: No such file or directory"),
        ("--context", "[1]", "--context takes a JSON object"),
    ],
)
def test_bad_json_is_a_usage_error(
    rune: Rune, definition: Definition, option: str, given: str, message: str
) -> None:
    done = rune("run", definition(log("a", 1)), option, given)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_wrong_definition(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    done = rune("run", "--json", definition(log("a", 1, levle="info"), {"id": "b", "type": "lgo"}))
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[E012]" in done.stderr
    assert "error[E016]" in done.stderr
    assert leftovers(tmp_path) == []


def test_a_file_that_is_not_there(rune: Rune) -> None:
    done = rune("run", "absent.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot read absent.json: No such file or directory" in done.stderr


def test_yaml_and_standard_input(rune: Rune) -> None:
    flow = "nodes:\n- {id: a, type: log, parameters: {message: from yaml}}\n"
    done = rune("run", "-q", "-", input=flow)
    assert json.loads(done.stdout)["message"] == "from yaml"


def test_a_database_of_ones_own_is_kept(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    flow = definition(edit("a", x=1))
    for done in (rune("run", "-q", flow, "--db", "my.db"), rune("run", "-q", flow, RUNE_DB="my.db")):
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "my.db").stat().st_size > 0
    done = rune("resume", "--db", "my.db")
    assert (done.returncode, done.stderr) == (0, "nothing is left to do\n")


@pytest.mark.parametrize("content", [b"not a database at all, just text", b""])
def test_no_database(rune: Rune, definition: Definition, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my.db").write_bytes(content)
    done = rune("run", "-q", definition(edit("a", x=1)), "--db", "my.db")
    assert done.returncode == (3 if content else 0)
    assert done.stdout == ("" if content else '{\n  "x": 1\n}\n')
    assert ("my.db" in done.stderr) == bool(content)


def test_a_database_that_cannot_be_written(rune: Rune, definition: Definition) -> None:
    done = rune("run", definition(edit("a", x=1)), "--db", "/proc/no/such/place.db")
    assert (done.returncode, done.stdout) == (3, "")
    assert "/proc/no/such/place.db" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_makes_no_sense(rune: Rune, definition: Definition) -> None:
    done = rune("run", definition(edit("a", x=1)), RUNE_CONCURRENCY="many")
    assert done.returncode == 2
    assert "a setting is wrong" in done.stderr


def test_node_types_of_ones_own(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TWICE)
    flow = definition({"id": "a", "type": "twice", "parameters": {"n": 21}})
    for done in (rune("run", "-q", flow, "--modules", "mine"), rune("run", "-q", flow, RUNE_MODULES="mine")):
        assert (done.returncode, done.stdout) == (0, "42\n")


def test_a_value_that_is_too_large_fails_the_execution(rune: Rune, definition: Definition) -> None:
    flow = definition(edit("a", x="{{ range(100) | join(',') }}"))
    done = rune("run", flow, RUNE_MAX_VALUE="100")
    assert (done.returncode, done.stdout) == (1, "")
    assert "more than the limit of 100" in done.stderr


def test_an_input_that_is_too_large_starts_nothing(
    rune: Rune, definition: Definition, tmp_path: Path
) -> None:
    done = rune("run", definition(edit("a", x=1)), "--input", json.dumps("x" * 200), RUNE_MAX_VALUE="100")
    assert (done.returncode, done.stdout) == (2, "")
    assert "more than the limit of 100" in done.stderr
    assert leftovers(tmp_path) == []


def test_a_database_of_another_version(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    flow = definition(edit("a", x=1))
    assert rune("run", "-q", flow, "--db", "my.db").returncode == 0
    with closing(sqlite3.connect(tmp_path / "my.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    done = rune("run", "-q", flow, "--db", "my.db")
    assert (done.returncode, done.stdout) == (3, "")
    assert "my.db has version 99" in done.stderr


def test_run_imports_nothing_it_does_not_need(definition: Definition, tmp_path: Path) -> None:
    flow = tmp_path / definition(edit("a", x=1), log("b", "x"))
    heavy = ("rich", "yaml", "aiohttp", "aiosmtplib", "importlib.metadata", "rune.nodes.http")
    code = (
        f"import sys; from rune.cli import main; main(['run', {str(flow)!r}])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_in_a_terminal_the_tree_is_live(definition: Definition, tmp_path: Path) -> None:
    """On a real pseudo-terminal: a picture that is drawn over, and a coloured result."""
    flow = tmp_path / definition(edit("a", x=1), wait("nap", 0.5), edit("b", y=2))
    screen, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", "rune", "run", str(flow)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    ) as process:
        os.close(terminal)
        seen = b"".join(iter(lambda: _read(screen), b"")).decode()
        assert process.wait(timeout=30) == 0
    os.close(screen)
    assert "\x1b[?25l" in seen  # the cursor is hidden while it draws
    assert "◷" in seen
    assert " left" in seen
    assert "✔ completed" in re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert "\x1b[?25h" in seen


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # what Linux says when the other end is closed
        return b""


def test_a_failed_playbook_names_the_step_and_what_would_take_it_up(rune: Rune, tmp_path: Path) -> None:
    file = tmp_path / "playbook.yaml"
    file.write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: wrong}\nworkflow:\n"
        '  - {step: divide, tool: {kind: python, code: "1 / 0"}}\n'
    )
    ran = rune("run", str(file))
    assert ran.returncode == 1
    assert "step 'divide': CODE_RAISED: ZeroDivisionError" in ran.stderr
    assert "event.name == 'step.failed'" in ran.stderr
