"""The workflow node: which one, with what."""

from __future__ import annotations

from rune.core.outcome import Call
from rune.nodes.workflow import Workflow
from tests.nodes.fakes import FakeContext, run


async def test_it_calls_the_workflow_with_the_input() -> None:
    assert await run(Workflow, FakeContext({"$a": [1]}), workflow="other", input="$a") == Call("other", [1])


async def test_without_an_input_it_starts_with_nothing() -> None:
    assert await run(Workflow, workflow="other") == Call("other", {})


async def test_the_name_is_taken_as_written() -> None:
    assert await run(Workflow, FakeContext({"$a": "b"}), workflow="$a") == Call("$a", {})
