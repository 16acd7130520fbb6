"""Stopping a run and going on with it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Definition, Rune, environment
from tests.cli.definitions import edit, log, wait

Start = Callable[..., "subprocess.Popen[str]"]


def until_waiting(process: subprocess.Popen[str]) -> str:
    """Read the progress until a node waits; what was read."""
    assert process.stderr is not None
    read = ""
    for line in process.stderr:
        read += line
        if " waiting " in line:
            return read
    raise AssertionError(f"nothing waits:\n{read}")


def fan_out(seconds: float) -> list[dict[str, Any]]:
    """Twenty items that rest, and their sum."""
    total = {"sum": {"op": "sum", "value": "$json.n"}}
    return [
        {"id": "each", "type": "split", "parameters": {"source": {"range": 20}}},
        wait("rest", seconds),
        edit("double", n="{{ $item * 2 }}"),
        {"id": "all", "type": "aggregator", "parameters": {"reduce": total}},
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_and_nothing_is_lost(
    rune: Rune, start: Start, definition: Definition, number: int, code: int
) -> None:
    process = start("run", definition(edit("a", x=1), wait("rest", 2), edit("b", y="{{ $a['$json'].x }}")))
    until_waiting(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (code, "")
    assert "interrupted; nothing is lost" in err
    assert "Traceback" not in err
    found = re.search(r"rune resume --db (\S+)", err)
    assert found is not None
    listed = rune("resume")
    assert f"rune resume --db {found[1]}" in listed.stdout
    done = rune("resume", "--db", found[1])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"y": 1}
    assert not Path(found[1]).exists()
    assert rune("resume").stdout == ""


def test_kill_9_and_go_on(rune: Rune, start: Start, definition: Definition, tmp_path: Path) -> None:
    process = start("run", definition(log("before", "x"), wait("nap", 1), *fan_out(0.5)), "--db", "my.db")
    until_waiting(process)
    process.kill()
    process.wait()
    done = rune("resume", "--db", "my.db", "--json")
    assert done.returncode == 0, done.stderr
    message = json.loads(done.stdout)
    assert message["status"] == "completed"
    assert message["final_context"]["$all"]["reduced"] == {"sum": 380}
    assert (tmp_path / "my.db").exists()


def test_kill_9_within_a_fan_out(rune: Rune, start: Start, definition: Definition) -> None:
    process = start("run", definition(*fan_out(1)), "--db", "my.db")
    assert process.stderr is not None
    for line in process.stderr:
        if " each success" in line:
            break
    process.kill()
    process.wait()
    done = rune("resume", "--db", "my.db", "-q")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reduced"] == {"sum": 380}


def test_a_database_in_use_is_refused(rune: Rune, start: Start, definition: Definition) -> None:
    flow = definition(wait("rest", 30))
    until_waiting(process := start("run", flow, "--db", "my.db"))
    for arguments in (("resume",), ("run", flow)):
        done = rune(*arguments, "--db", "my.db")
        assert (done.returncode, done.stdout) == (3, "")
        assert f"in use by process {process.pid}" in done.stderr


def test_a_run_that_still_runs_is_listed_as_such(rune: Rune, start: Start, definition: Definition) -> None:
    until_waiting(start("run", definition(wait("rest", 30))))
    assert rune("resume").stdout.endswith("  (running)\n")


def test_nothing_to_resume(rune: Rune) -> None:
    done = rune("resume")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing was left unfinished" in done.stderr


def test_a_database_that_is_not_there(rune: Rune, tmp_path: Path) -> None:
    done = rune("resume", "--db", "absent.db")
    assert done.returncode == 2
    assert "there is no database absent.db" in done.stderr
    assert not (tmp_path / "absent.db").exists()


def test_a_full_disk_loses_nothing(rune: Rune, definition: Definition, tmp_path: Path) -> None:
    definition(edit("grow", texts=["$trigger.text"] * 10), log("after", "{{ $json.texts | length }}"))
    (tmp_path / "input.json").write_text(json.dumps({"text": "x" * 100_000}))
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, resource.RLIM_INFINITY))\n"
        "from rune.cli import main\n"
        "sys.exit(main(['run', '-q', 'flow.json', '--db', 'my.db', '--input', '@input.json']))"
    )
    command = [sys.executable, "-c", code]
    full = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert (full.returncode, full.stdout) == (3, "")
    assert "my.db" in full.stderr
    assert "Traceback" not in full.stderr
    done = rune("resume", "-q", "--db", "my.db")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["message"] == "10"
