"""The playbook tool: other playbooks and workflows, run as executions of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import yaml

from rune.cli.types import node_types
from rune.core.ids import is_child
from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.core.playbook.tool import Tool, ToolContext
from rune.core.registry import Registry
from rune.embedded import Embedded
from rune.formats.definition import compile_definition
from rune.nodes import load_builtin
from rune.settings import Settings
from tests.playbooks.playing import Played, compiled, play, whole

CHILD = """
workload: {n: 1}
workflow:
  - step: work
    tool: {kind: python, args: {n: "{{ workload.n }}"}, code: "result = n * 2"}
"""
NAP: dict[str, Any] = {
    "workflow_id": "nap",
    "nodes": [
        {"id": "nap", "type": "wait", "parameters": {"amount": 0.3}},
        {"id": "end", "type": "log", "parameters": {"message": "{{ $trigger.n }}"}},
    ],
    "edges": [{"id": "e", "src": "nap", "dst": "end"}],
}
ENDLESS: dict[str, Any] = {
    "workflow_id": "endless",
    "nodes": [{"id": "nap", "type": "wait", "parameters": {"resume": "webhook"}}],
    "edges": [],
}


def working(code: str) -> str:
    """The lines of a playbook whose one step runs this."""
    return f"""
workflow:
  - step: work
    tool: {{kind: python, code: "{code}"}}
"""


def carrying(text: str, **workflows: str | dict[str, Any]) -> str:
    """The lines of a playbook that carries others."""
    carried = {
        name: yaml.safe_load(whole(each)) if isinstance(each, str) else each
        for name, each in workflows.items()
    }
    return f"workflows: {msgspec.json.encode(carried).decode()}\n" + _dedented(text)


def _dedented(text: str) -> str:
    lines = text.strip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] for line in lines) + "\n"


def children(told: list[NodeStatusMessage]) -> set[str]:
    """The executions that were called."""
    return {status.execution_id for status in told if is_child(status.execution_id)}


async def played(text: str, settings: Settings | None = None, **workflows: Any) -> Played:
    """Run a playbook that carries these others."""
    return await play(carrying(text, **workflows), settings=settings)


async def test_the_result_of_a_playbook_is_its_ctx_and_steps() -> None:
    text = """
    workflow:
      - step: call
        tool: {kind: playbook, path: child, args: {n: 21}}
        next: [{step: after}]
      - step: after
        tool: {kind: python, args: {got: "{{ call.steps.work }}"}, code: "result = got"}
    """
    came = await played(text, child=CHILD)
    assert came.status == "completed"
    assert came.steps["call"] == {"ctx": {}, "steps": {"work": 42}}
    assert came.steps["after"] == 42


async def test_a_workflow_of_the_other_format_is_called_the_same_way() -> None:
    text = """
    workflow:
      - step: call
        tool: {kind: playbook, path: graph, args: {n: 5}}
    """
    came = await played(text, graph=NAP)
    assert came.steps["call"]["message"] == "5"


async def test_more_callers_wait_than_there_is_room_for() -> None:
    """Twelve shards on a worker that runs one step at a time and takes two Tasks, three calls deep."""
    middle = carrying(
        """
        workload: {n: 0}
        workflow:
          - step: call
            tool: {kind: playbook, path: child, args: {n: "{{ workload.n }}"}}
        """,
        child=CHILD,
    )
    text = """
    workflow:
      - step: each
        spec: {loop_mode: fanout}
        loop: {in: "{{ range(12) }}", iterator: n}
        tool:
          - call: {kind: playbook, path: middle, args: {n: "{{ iter.n }}"}}
    """
    came = await asyncio.wait_for(played(text, Settings(concurrency=1, prefetch=2), middle=middle), 60)
    assert came.status == "completed"
    results = came.steps["each"]["results"]
    assert [result["steps"]["call"]["steps"]["work"] for result in results] == [2 * n for n in range(12)]


async def test_iterations_side_by_side_call_side_by_side() -> None:
    text = """
    workflow:
      - step: each
        loop: {in: "{{ range(6) }}", iterator: n, spec: {mode: parallel, max_in_flight: 6}}
        tool:
          - call: {kind: playbook, path: nap, args: {n: "{{ iter.n }}"}}
    """
    came = await asyncio.wait_for(played(text, Settings(concurrency=1), nap=NAP), 30)
    assert [result["message"] for result in came.steps["each"]["results"]] == list("012345")
    assert len(children(came.told)) == 6


async def test_a_failed_call_is_an_outcome_like_any_other_and_a_retry_another_child() -> None:
    text = """
    workflow:
      - step: call
        tool:
          - try:
              kind: playbook
              path: bad
              eval:
                - {expr: "{{ outcome.error and outcome.meta.attempt < 3 }}", do: retry, attempts: 3}
                - else: {do: continue, set_ctx: {error: "{{ outcome.error }}"}}
    """
    came = await played(text, bad=working("raise ValueError('no such thing')"))
    assert came.status == "completed"
    error = came.ctx["error"]
    assert (error["kind"], error["code"]) == ("playbook", "CHILD_FAILED")
    assert "no such thing" in error["message"]
    assert error["child"] in children(came.told)
    assert len(children(came.told)) == 3


async def test_what_a_result_only_refers_to_comes_along() -> None:
    """The other execution, and what it has stored, may be gone when it is read."""
    text = """
    workflow:
      - step: call
        tool:
          - call: {kind: playbook, path: big}
          - load: {kind: artifact, ref: "{{ _prev.steps.work }}"}
          - measure: {kind: python, args: {got: "{{ _prev }}"}, code: "result = len(got)"}
    """
    came = await played(text, big=working("result = 'x' * 200_000"))
    assert came.status == "completed", came.error
    assert came.steps["call"] == 200_000


class Leak(Tool, kw_only=True):
    """A tool that gives away what it should not."""

    name: ClassVar = "tool.leak"

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        return {"result": (await context.credential("door"))["code"]}


async def test_a_secret_does_not_travel_into_the_other_execution() -> None:
    text = """
    workflow:
      - step: call
        tool:
          - look: {kind: leak}
          - tell: {kind: playbook, path: child, args: {code: "{{ _prev }}"}}
    """
    child = """
    workflow:
      - step: show
        tool: {kind: python, args: {code: "{{ workload.code }}"}, code: "result = code[::-1]"}
    """
    flow = compile_definition(
        msgspec.json.encode(yaml.safe_load(whole(carrying(text, child=child)))),
        registry := Registry([*load_builtin(), *load_builtin("playbook"), *load_builtin("tools"), Leak]),
    )
    settings = Settings(credentials='{"door": {"code": "open-sesame"}}')
    async with Embedded.open(settings, registry) as rune:
        completion = await rune.result(await rune.start(flow))
    result = msgspec.json.decode(completion.final_context["$~verdict"])
    seen = result["steps"]["call"]["steps"]["show"][::-1]
    assert seen
    assert "sesame" not in seen


STEP = """
workflow:
  - step: call
    spec: {timeout: 1}
    tool: {kind: playbook, path: endless}
    next: [{step: rest, when: "{{ event.name == 'step.failed' }}"}]
  - step: rest
    tool: {kind: attend}
"""
SHARD = STEP.replace("{timeout: 1}", "{timeout: 1, loop_mode: fanout, fanout: {max_job_retries: 0}}").replace(
    "    tool: {kind: playbook", "    loop: {in: [1], iterator: n}\n    tool: {kind: playbook"
)


@pytest.mark.parametrize("text", [STEP, SHARD], ids=["step", "shard"])
async def test_a_time_out_ends_what_was_called(text: str) -> None:
    over = asyncio.Event()
    ended: list[CompletionMessage] = []

    class Attend(Tool, kw_only=True):
        """Wait until what was called has ended: so it is not the caller's own end that ends it."""

        name: ClassVar = "tool.attend"

        async def call(self, context: ToolContext) -> Mapping[str, Any]:
            await asyncio.wait_for(over.wait(), 30)
            return {}

    def hear(completion: CompletionMessage) -> None:
        if is_child(completion.execution_id):
            ended.append(completion)
            over.set()

    settings = Settings()
    registry = node_types(settings)
    registry.add(Attend)
    flow = compiled(whole(carrying(text, endless=ENDLESS)), registry=registry)
    async with Embedded.open(settings, registry, held=True) as rune:
        rune.hear(hear)
        rune.taking.set()
        completion = await rune.result(await rune.start(flow))
    assert completion.status == "completed", completion.error
    assert [child.status for child in ended] == ["halted"]


async def test_whoever_cancels_the_caller_cancels_the_child() -> None:
    text = """
    workflow:
      - step: call
        tool: {kind: playbook, path: endless}
    """
    flow = compiled(whole(carrying(text, endless=ENDLESS)))
    ended: dict[str, CompletionMessage] = {}
    asleep, over = asyncio.Event(), asyncio.Event()
    settings = Settings()

    def listen(statuses: Any) -> None:
        if any(status.node_id == "nap" and status.status == "waiting" for status in statuses):
            asleep.set()

    def hear(completion: CompletionMessage) -> None:
        ended[completion.execution_id] = completion
        if len(ended) == 2:
            over.set()

    async with Embedded.open(settings, node_types(settings), held=True) as rune:
        rune.listen(listen)
        rune.hear(hear)
        rune.taking.set()
        execution = await rune.start(flow)
        await asyncio.wait_for(asleep.wait(), 10)
        await rune.cancel(execution)
        await asyncio.wait_for(over.wait(), 10)
    assert [completion.status for completion in ended.values()] == ["halted", "halted"]


async def test_what_was_called_before_the_worker_stopped_is_found_again(tmp_path: Path) -> None:
    text = """
    workflow:
      - step: call
        tool:
          - one: {kind: playbook, path: child, args: {n: 4}}
          - two: {kind: playbook, path: nap, args: {n: "{{ _prev.steps.work }}"}}
    """
    flow = compiled(whole(carrying(text, child=CHILD, nap={**NAP, "nodes": _slower(NAP["nodes"])})))
    told: list[NodeStatusMessage] = []
    asleep = asyncio.Event()
    settings = Settings(grace=0)

    def listen(statuses: Any) -> None:
        told.extend(statuses)
        if any(status.node_id == "nap" and status.status == "waiting" for status in statuses):
            asleep.set()

    database = str(tmp_path / "rune.db")
    async with Embedded.open(settings, node_types(settings), database) as rune:
        rune.listen(listen)
        execution = await rune.start(flow)
        await asyncio.wait_for(asleep.wait(), 20)
    async with Embedded.open(settings, node_types(settings), database) as rune:
        rune.listen(listen)
        assert await rune.unfinished() == [execution]
        completion = await rune.result(execution)
    result = msgspec.json.decode(completion.final_context["$~verdict"])
    assert result["steps"]["call"]["message"] == "8"
    assert len(children(told)) == 2
    assert [s.status for s in told if s.node_id == "work"].count("running") == 1


def _slower(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**nodes[0], "parameters": {"amount": 1.5}}, *nodes[1:]]
