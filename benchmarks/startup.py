"""How long the command takes to start, in times of the bare interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["start_times"]

_NEXT = [{"name": "n", "value": "{{ $json.n + 1 }}"}]
_THREE = {
    "workflow_id": "three",
    "nodes": [
        {"id": "a", "type": "edit", "parameters": {"assignments": [{"name": "n", "value": 20}]}},
        {"id": "b", "type": "edit", "parameters": {"assignments": _NEXT}},
        {"id": "c", "type": "log", "parameters": {"message": "{{ $json.n * 2 }}"}},
    ],
    "edges": [{"id": "ab", "src": "a", "dst": "b"}, {"id": "bc", "src": "b", "dst": "c"}],
}


def start_times(rounds: int = 15) -> dict[str, list[float]]:
    """Seconds of `python -c pass`, `rune --help` and `rune run` of three nodes, taken in turn."""
    with tempfile.TemporaryDirectory() as directory:
        flow = Path(directory) / "three.json"
        flow.write_text(json.dumps(_THREE))
        # As the installed command does it; bytecode is kept, as it is of an installed package.
        rune = [sys.executable, "-c", "import sys; from rune.cli import main; sys.exit(main())"]
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "help": [*rune, "--help"],
            "run": [*rune, "run", str(flow)],
        }
        environment = {**os.environ, "XDG_STATE_HOME": directory}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(rounds + 1):
            for name, command in commands.items():
                seconds = _timed(command, environment)
                if turn:  # the first one warms up
                    times[name].append(seconds)
        return times


def _timed(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return time.perf_counter() - began
