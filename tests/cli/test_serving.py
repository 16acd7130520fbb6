"""`rune worker` and `rune scheduler`: what they say when they cannot begin, and how they log."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from rune.cli import main
from rune.cli.logs import _Json, _Plain
from tests.servers.process import free_port


@pytest.fixture(autouse=True)
def own_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of processes of their own set up all logging."""
    monkeypatch.setattr("rune.cli.serving.log_to_stderr", lambda style: None)


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_without_servers_it_says_how_to_name_them(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([role]) == 2
    assert "RUNE_BROKER_URL" in capsys.readouterr().err


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_a_broker_out_of_reach_is_trouble_of_the_machine(
    role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"amqp://127.0.0.1:{free_port()}"
    assert main([role, "--broker", where, "--state", "redis://127.0.0.1:1"]) == 3
    assert "cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["dead", "workflow.execution.dead", "workflow.completion", "a b"])
def test_a_pool_that_cannot_be_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    servers = ["--broker", "amqp://127.0.0.1:1", "--state", "redis://127.0.0.1:1"]
    assert main(["worker", *servers, "--queues", name]) == 2
    assert f"'{name.removeprefix('workflow.execution.')}' cannot be a pool's name" in capsys.readouterr().err


def record() -> logging.LogRecord:
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError:
        return logging.LogRecord("rune.worker", logging.WARNING, "", 1, "a %s\nb", ("line",), sys.exc_info())


def test_a_record_is_one_json_object_in_one_line() -> None:
    line = _Json().format(record())
    assert "\n" not in line
    made = json.loads(line)
    assert (made["level"], made["logger"], made["message"]) == ("warning", "rune.worker", "a line\nb")
    assert "ZeroDivisionError: oh" in made["exception"]


def test_or_a_line_to_read() -> None:
    first, *_ = _Plain().format(record()).splitlines()
    assert first.endswith("WARNING rune.worker: a line")
