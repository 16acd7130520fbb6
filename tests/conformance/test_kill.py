"""kill -9 at any moment; started again on the same file, the execution comes to its right end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conformance.harness import flow, node

ROOT = Path(__file__).parents[2]
USERS = [list(range(n)) for n in (30, 0, 25, 40)]
DEFINITION = flow(
    [
        node("users", "stream", of=[USERS[:1], [], USERS[1:]], window=2),
        node("orders", "split", input_array="$item", batch_size=1, max_concurrency=5),
        node("odd", "conditional", expression="$item % 2 == 1"),
        node("l", of="{{ $item * 2 }}"),
        node("r", "log", message="order {{ $item }}"),
        node("w", "wait", amount=0.05),
        node("m", "merge"),
        node("per_user", "aggregator", collect="$item"),
        node("all", "aggregator", collect="$per_user.aggregated"),
        node("end", of="$all"),
    ],
    "users > orders > odd",
    "odd:true > l > m",
    "odd:false > r > w > m",
    "m > per_user > all > end",
)


def child(database: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.conformance.kill_child", str(database)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [*command, json.dumps(DEFINITION), json.dumps(USERS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_it_ends_as_if_nothing_had_happened(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    database = tmp_path / "rune.db"
    for _ in range(6):
        with child(database) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            time.sleep(chance.random() * 0.15)
            process.send_signal(signal.SIGKILL)
    with child(database) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    _, *lines = output.splitlines()
    (completion,) = [json.loads(line) for line in lines]
    assert completion["status"] == "completed"
    result = completion["final_context"]["$end"]
    assert result["aggregated"] == USERS
    assert (result["succeeded"], result["failed"], result["skipped"]) == (4, 0, 0)
