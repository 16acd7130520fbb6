"""Workflows in files that call one another."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Rune
from tests.cli.definitions import edit, in_line, log, wait


def write(path: Path, *nodes: dict[str, Any]) -> None:
    """Write a workflow of nodes one after another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"nodes": nodes, "edges": in_line(nodes)}, indent=1))


def call(name: str, **input: Any) -> dict[str, Any]:
    """A node that calls the workflow in a file."""
    return {"id": "call", "type": "workflow", "parameters": {"workflow": name, "input": input}}


def test_a_file_is_found_beside_the_one_that_calls_it(rune: Rune, tmp_path: Path) -> None:
    write(tmp_path / "main.json", call("parts/middle", n=4))
    write(tmp_path / "parts/middle.json", call("../leaf.json", n="{{ $trigger.n + 1 }}"))
    write(tmp_path / "leaf.json", edit("leaf", n="{{ $trigger.n * 2 }}"))
    done = rune("run", "main.json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"n": 10}
    told = [line.split()[1] for line in done.stderr.splitlines()[:-1]]
    assert set(told) == {"call"}, "what others do is told by their own executions"
    assert list((tmp_path / "state").rglob("*.db")) == []


def test_what_is_wrong_is_said_where_it_is_called(rune: Rune, tmp_path: Path) -> None:
    write(tmp_path / "main.json", call("missing"))
    write(tmp_path / "other.json", call("bad"))
    write(tmp_path / "circle.json", call("circle"))
    (tmp_path / "bad.yaml").write_text("nodes: [\n")
    checked = rune("validate", "main.json", "other.json", "circle.json")
    assert checked.returncode == 2
    lines = [line for line in checked.stdout.splitlines() if "error[" in line]
    assert [re.sub(r" error\[(....)\].*", r" \1", line) for line in lines] == [
        "main.json:7:17 E050",
        "other.json:7:17 E052",
        "circle.json:7:17 E051",
    ]


def test_what_fails_in_the_other_is_the_failure_of_the_call(rune: Rune, tmp_path: Path) -> None:
    write(tmp_path / "main.json", call("bad"))
    write(tmp_path / "bad.json", log("say", "{{ $trigger.no.such.thing }}"))
    done = rune("run", "main.json")
    assert done.returncode == 1
    assert "CHILD_FAILED: the workflow 'bad' has failed" in done.stderr


def test_a_stopped_run_is_resumed_with_all_that_it_has_called(
    rune: Rune, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    write(tmp_path / "main.json", call("slow", n=3), edit("end", n="{{ $call.n + 1 }}"))
    write(tmp_path / "slow.json", wait("rest", 1.5), edit("leaf", n="{{ $trigger.n }}"))
    process = start("run", "main.json", "--db", "run.db")
    assert process.stderr is not None
    assert "call waiting" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    done = rune("resume", "--db", "run.db", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["final_context"]["$end"] == {"$json": {"n": 4}}
    assert rune("resume", "--db", "run.db").stderr.strip().endswith("nothing is left to do")
