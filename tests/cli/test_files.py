"""Files that a workflow reads, where its owner runs it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Rune
from tests.cli.definitions import in_line

Start = Callable[..., "subprocess.Popen[str]"]


def reading(directory: Path, *body: dict[str, Any]) -> str:
    """Write a workflow that reads the numbers beside it; where it is."""
    total = {"sum": {"op": "sum", "value": "$item.n"}}
    nodes = [
        {
            "id": "each",
            "type": "split",
            "parameters": {"source": {"jsonl": "numbers.jsonl"}, "max_concurrency": 50},
        },
        *body,
        {"id": "all", "type": "aggregator", "parameters": {"reduce": total}},
    ]
    flow = {"workflow_id": "flow", "nodes": nodes, "edges": in_line(nodes)}
    directory.mkdir(exist_ok=True)
    (directory / "flow.json").write_text(json.dumps(flow))
    return str(directory / "flow.json")


def write(file: Path, count: int) -> None:
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(count)))


def test_files_lie_beside_the_workflow_or_below_the_artifacts(rune: Rune, tmp_path: Path) -> None:
    flow = reading(tmp_path / "flows")
    missing = rune("run", flow)
    assert missing.returncode == 1
    assert "there is no file 'numbers.jsonl' below the directory of artifacts" in missing.stderr
    write(tmp_path / "flows" / "numbers.jsonl", 4)
    assert json.loads(rune("run", "--quiet", flow).stdout)["reduced"] == {"sum": 6}
    (tmp_path / "artifacts").mkdir()
    write(tmp_path / "artifacts" / "numbers.jsonl", 3)
    done = rune("run", "--quiet", flow, RUNE_ARTIFACTS=str(tmp_path / "artifacts"))
    assert json.loads(done.stdout)["reduced"] == {"sum": 3}


def interrupted(process: subprocess.Popen[str]) -> list[str]:
    """Stop a run while its items rest; the command that it names to go on with."""
    assert process.stderr is not None
    for line in process.stderr:
        if " all " in line:
            break
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=20)
    found = re.search(r"rune (resume --db \S+ --files \S+)", told)
    assert found is not None, told
    return found[1].split()


def test_an_interrupted_run_finds_its_files_again(rune: Rune, start: Start, tmp_path: Path) -> None:
    flow = reading(tmp_path / "flows", {"id": "rest", "type": "wait", "parameters": {"amount": 1}})
    write(tmp_path / "flows" / "numbers.jsonl", 150)
    resume = interrupted(start("run", flow))
    # Also where that is interrupted in turn.
    assert interrupted(start(*resume)) == resume
    done = rune(*resume)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reduced"] == {"sum": sum(range(150))}
