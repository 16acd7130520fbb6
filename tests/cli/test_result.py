"""The result of an execution."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.cli.result import final_value, show_result
from rune.core.errors import ErrorInfo
from rune.core.messages import CompletionMessage
from tests.cli.statuses import fan_out, flow


def context(**values: Any) -> dict[str, msgspec.Raw]:
    return {f"${name}": msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}


CHAIN = flow(dict.fromkeys("abc", "log"), [("a", "b"), ("b", "c")])


def test_the_last_node_gives_the_value() -> None:
    assert final_value(context(trigger={}, a=1, b=2, c=3), CHAIN) == 3


def test_where_it_ended_early_the_last_that_ran_does() -> None:
    assert final_value(context(a=1, b=2), CHAIN) == 2


def test_what_is_inside_a_fan_out_is_no_gap() -> None:
    assert final_value(context(outer={"count": 1}, all={"count": 1}), fan_out()) == {"count": 1}


def test_the_working_payload_stands_for_itself() -> None:
    assert final_value(context(a={"$json": [1]}), CHAIN) == [1]
    assert final_value(context(a={"$json": [1], "count": 1}), CHAIN) == {"$json": [1], "count": 1}


def test_of_an_unknown_workflow_all_there_is() -> None:
    assert final_value(context(a=1, b=2), None) == {"$a": 1, "$b": 2}


def test_an_error_without_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    error = ErrorInfo("too bad", "BAD", {"tries": 3, "text": "x" * 1000})
    completion = CompletionMessage(
        workflow_id="w",
        execution_id="x",
        status="failed",
        final_context={},
        completed_at="",
        total_duration_ms=1500,
        error=error,
        reason="cancelled",
    )
    assert show_result(completion, None, quiet=True) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        "✖ failed after 1.5 s: cancelled\n  BAD: too bad\n    tries: 3\n    text: xxx"
    )
    assert len(captured.err) < 700
