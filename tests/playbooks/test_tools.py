"""Tools as they are used from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.playbooks.playing import whole

DUCKDB = """
workflow:
  - {step: ask, tool: {kind: duckdb, command: "SELECT 6 * 7 AS n"}}
"""


def test_duckdb_leaves_nothing_on_the_terminal_but_the_result(tmp_path: Path) -> None:
    file = tmp_path / "ask.yaml"
    file.write_text(whole(DUCKDB), encoding="utf-8")
    command = [sys.executable, "-m", "rune", "run", "--quiet", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["steps"]["ask"]["command_0"]["rows"] == [{"n": 42}]
