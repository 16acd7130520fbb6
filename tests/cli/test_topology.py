"""`rune topology`: for people, for programs, for RabbitMQ."""

from __future__ import annotations

import json

import pytest

from rune.cli import main


def test_a_table_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology"]) == 0
    shown = capsys.readouterr().out
    assert "workflow.execution.retry.25s" in shown
    assert "rune-worker" in shown


def test_json_with_pools_and_quorum_queues(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--json", "--pools", "gpu, mail", "--quorum"]) == 0
    queues = {queue["name"]: queue["arguments"] for queue in json.loads(capsys.readouterr().out)["queues"]}
    assert {"workflow.execution.gpu", "workflow.execution.mail"} <= queues.keys()
    assert queues["workflow.execution"]["x-queue-type"] == "quorum"


def test_definitions_for_a_virtual_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--definitions", "--vhost", "rune"]) == 0
    definitions = json.loads(capsys.readouterr().out)
    assert {queue["vhost"] for queue in definitions["queues"]} == {"rune"}
    assert all("amq.default" not in permission["write"] for permission in definitions["permissions"])


def test_a_pool_that_cannot_be_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--pools", "dead"]) == 2
    assert "dead" in capsys.readouterr().err
