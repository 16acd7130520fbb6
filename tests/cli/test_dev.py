"""`rune dev`, as somebody at a shell meets it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.master.client import flow_of, sleeper


class _Dev:
    """A process of `rune dev`, and the API at the address that it says."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._log = directory / f"dev-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "rune", "dev", "--port", "0", *arguments]
        environ = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environ, cwd=directory)
        while "Stop with" not in self.said:
            assert self.process.poll() is None, self.said
            time.sleep(0.02)
        self.address = "http://" + self.said.partition("http://")[2].split()[0]

    @property
    def said(self) -> str:
        return self._log.read_text()

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.address + path, data, headers), timeout=60) as answer:
            return json.load(answer)

    def until(self, path: str, **wanted: Any) -> Any:
        while True:
            found = self.ask(path)
            if all(found[name] == value for name, value in wanted.items()):
                return found
            time.sleep(0.05)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def _dev(directory: Path, *arguments: str) -> Iterator[_Dev]:
    dev = _Dev(directory, *arguments)
    try:
        yield dev
    finally:
        if dev.process.poll() is None:
            dev.end(signal.SIGKILL)


def test_it_says_where_it_is_and_ends_cleanly(tmp_path: Path) -> None:
    with _dev(tmp_path) as dev:
        assert dev.ask("/health/ready")["status"] == "ok"
        found = dev.ask("/api/executions", {"definition": flow_of({"id": "a"}), "wait": 30})
        assert found["status"] == "completed"
        assert dev.end(signal.SIGINT) == 0
        assert "Traceback" not in dev.said
    # By default it keeps everything in the state directory.
    assert (tmp_path / "state" / "rune" / "dev.db").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_unfinished_goes_on_after_it_was_ended(tmp_path: Path, number: int) -> None:
    database = ("--db", str(tmp_path / "mine.db"))
    with _dev(tmp_path, *database) as dev:
        dev.ask("/api/workflows", {"definition": flow_of(sleeper(3), {"id": "after"}, id="nap")})
        started = [dev.ask("/api/executions", {"workflow_id": "nap"})["id"] for _ in range(5)]
        done = dev.ask("/api/executions", {"definition": flow_of({"id": "a"}), "wait": 30})
        dev.until(f"/api/executions/{started[-1]}", status="running")
        dev.end(number)
    with _dev(tmp_path, *database) as dev:
        for id in started:
            found = dev.until(f"/api/executions/{id}", status="completed")
            assert found["nodes"]["after"]["success"] == 1
        assert dev.ask(f"/api/executions/{done['id']}")["status"] == "completed"
        assert len(dev.ask("/api/executions")["items"]) == 6


def test_what_was_stored_and_never_started_is_started(tmp_path: Path) -> None:
    import sqlite3

    database = tmp_path / "mine.db"
    with _dev(tmp_path, "--db", str(database)) as dev:
        found = dev.ask("/api/executions", {"definition": flow_of({"id": "a"}), "wait": 30})
        dev.end(signal.SIGKILL)
    # As if it had died between storing an execution and starting it.
    with sqlite3.connect(database) as connection:
        connection.execute(
            "INSERT INTO history_execution (id, definition_hash, name, status, trigger, created_at, root) "
            "SELECT 'exec_left', definition_hash, name, 'pending', 'api', created_at, 'exec_left' "
            "FROM history_execution WHERE id = ?",
            (found["id"],),
        )
    connection.close()
    with _dev(tmp_path, "--db", str(database)) as dev:
        dev.until("/api/executions/exec_left", status="completed")


def test_a_file_that_is_in_use_and_a_port_that_is_taken_are_told_in_a_line(tmp_path: Path) -> None:
    with _dev(tmp_path) as dev, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        other = str(tmp_path / "other.db")
        for arguments, word in ((["--port", "0"], "in use"), (["--port", port, "--db", other], port)):
            ended = subprocess.run(
                [sys.executable, "-m", "rune", "dev", *arguments],
                env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert ended.returncode == 3, ended
            assert word in ended.stderr
            assert "Traceback" not in ended.stderr
        assert dev.process.poll() is None


def test_elsewhere_than_on_loopback_it_needs_accounts(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "rune", "dev", "--host", "0.0.0.0", "--port", "0"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "RUNE_ACCOUNTS": "false"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "accounts" in ended.stderr


def test_a_master_needs_to_know_where_everything_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rune", "master", "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "--history" in ended.stderr
