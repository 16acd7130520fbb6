"""The command `rune`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.definitions import in_line

Rune = Callable[..., subprocess.CompletedProcess[str]]
Definition = Callable[..., str]


def environment() -> dict[str, str]:
    """The environment of a child: no terminal, no colours, messages as they come."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "100"}


@pytest.fixture
def rune(tmp_path: Path) -> Rune:
    """Run the command to its end, in a directory of the test's own."""

    def run(*arguments: str, input: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rune", *arguments],
            cwd=tmp_path,
            env=environment() | variables,
            input=input,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command and leave it running; what is left of it dies with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "rune", *arguments],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def definition(tmp_path: Path) -> Definition:
    """Write a workflow whose nodes follow one another; the name of its file."""

    def write(*nodes: dict[str, Any], edges: list[dict[str, Any]] | None = None) -> str:
        if edges is None:
            edges = in_line(nodes)
        flow = {"workflow_id": "flow", "nodes": list(nodes), "edges": edges}
        (tmp_path / "flow.json").write_text(json.dumps(flow, indent=2))
        return "flow.json"

    return write
