"""Shards as jobs: how long they wait, how often they start, what becomes of one whose worker is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from rune import embedded
from rune.core.playbook.tool import Tool, ToolContext
from rune.settings import Settings
from tests.playbooks.mortal import MORTAL, entries
from tests.playbooks.playing import play

ROOT = Path(__file__).parents[2]

SLOW = """
workflow:
  - step: work
    spec: {{loop_mode: fanout, fanout: {{queue_ttl: {ttl}, max_job_retries: {retries}, allow_partial: true}}}}
    loop: {{in: [1, 2, 3, 4], iterator: n}}
    tool: {{kind: slow}}
    next: [{{step: told, args: {{fanin: "{{{{ fanin }}}}"}}}}]
  - {{step: told, tool: {{kind: python, code: "result = [fanin['succeeded'], fanin['failed']]"}}}}
"""


class Slow(Tool, kw_only=True):
    """The first shard, for which the others wait."""

    name: ClassVar = "tool.slow"
    work: ClassVar[Callable[[], Awaitable[None]]]

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        await Slow.work()
        return {}


async def test_a_shard_that_waits_too_long_in_the_queue_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(time=time.time)
    monkeypatch.setattr(embedded, "time", SimpleNamespace(time=lambda: clock.time()))

    async def an_hour() -> None:
        clock.time = lambda: time.time() + 3600

    monkeypatch.setattr(Slow, "work", an_hour, raising=False)
    played = await play(SLOW.format(ttl=600, retries=0), settings=Settings(concurrency=1), tools=[Slow])
    assert played.steps["told"] == [1, 3]
    errors = [m.error.code for m in played.told if m.error is not None and m.node_id == "work~shard"]
    assert errors == ["SHARD_EXPIRED"] * 3


async def test_an_expired_shard_is_put_into_the_queue_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = iter([0.3])

    async def some_time() -> None:
        await asyncio.sleep(next(rests, 0))

    monkeypatch.setattr(Slow, "work", some_time, raising=False)
    played = await play(SLOW.format(ttl=0.2, retries=100), settings=Settings(concurrency=1), tools=[Slow])
    assert played.steps["told"] == [4, 0]
    assert any(m.error is not None and m.error.code == "SHARD_EXPIRED" for m in played.told)


# --- killed in the middle ---


def child(database: Path, playbook: Path, journal: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.playbooks.kill_child", str(database), str(playbook)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [*command, json.dumps({"journal": str(journal)})],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )


def kill_in_the_middle(database: Path, playbook: Path, journal: Path) -> None:
    """Let it run until the second element is at work, and all others are done; then kill it."""
    before = Counter(what for what, n, *_ in entries(journal) if n == "2")
    with child(database, playbook, journal) as process:
        limit = time.monotonic() + 30
        while True:
            found = entries(journal)
            done = {n for what, n, *_ in found if what == "ended"}
            again = Counter(what for what, n, *_ in found if n == "2")["began"] > before["began"]
            if again and done == {"1", "3"}:
                break
            assert time.monotonic() < limit, found
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)


def ended(database: Path, playbook: Path, journal: Path) -> dict[str, Any]:
    with child(database, playbook, journal) as process:
        out, _ = process.communicate(timeout=60)
    completion: dict[str, Any] = json.loads(out.splitlines()[-1])
    return completion


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    playbook = tmp_path / "mortal.yaml"
    playbook.write_text(MORTAL.replace("RETRIES", "3"))
    return tmp_path / "rune.db", playbook, tmp_path / "journal"


def test_a_shard_whose_worker_is_killed_runs_again_as_itself(files: tuple[Path, Path, Path]) -> None:
    _, _, journal = files
    kill_in_the_middle(*files)
    Path(f"{journal}.spared").touch()
    completion = ended(*files)
    assert completion["status"] == "completed"
    found = entries(journal)
    assert Counter(what for what, n, *_ in found if n == "2") == {"began": 2, "ended": 1}
    # Whoever ran twice had the same names both times.
    assert len({tuple(names) for _, *names in found}) == 3
    work = completion["final_context"]["$~verdict"]["steps"]["work"]
    assert [result["iter_key"] for result in work["results"]] == ["k1", "k2", "k3"]
    assert [result["iter_index"] for result in work["results"]] == [0, 1, 2]


def test_a_shard_that_kills_its_workers_is_given_up(files: tuple[Path, Path, Path]) -> None:
    database, playbook, journal = files
    playbook.write_text(MORTAL.replace("RETRIES", "1"))
    for _ in range(2):
        kill_in_the_middle(database, playbook, journal)
    completion = ended(database, playbook, journal)
    assert completion["status"] == "failed"
    assert completion["error"]["details"]["first"]["code"] == "SHARD_EXPIRED"
    assert Counter(what for what, n, *_ in entries(journal) if n == "2") == {"began": 2}
