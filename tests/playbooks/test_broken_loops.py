"""Loops of which a part breaks: what is left of the results, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rune.cli.types import node_types
from rune.core.errors import InfrastructureError, NodeError
from rune.core.playbook.tool import Tool, ToolContext
from rune.embedded import Embedded
from rune.settings import Settings
from tests.playbooks.playing import compiled, play, whole


class Fragile(Tool, kw_only=True):
    """A tool that breaks, is too slow or gives too much, as it is told."""

    name: ClassVar = "tool.fragile"

    n: int
    breaks: int
    how: str

    async def call(self, context: ToolContext) -> Mapping[str, Any]:
        if self.n != self.breaks:
            return {"result": self.n}
        if self.how == "slow":
            await asyncio.Event().wait()
        if self.how == "large":
            return {"result": "x" * 300_000}
        if self.how == "lies":
            raise NodeError("no", details={"shard_elements": {"at": 5, "count": 5, "of": 50}})
        raise RuntimeError("broken")


@pytest.mark.parametrize("how", ["raises", "slow", "large"])
@pytest.mark.parametrize(
    ("breaks", "results"),
    [
        (1, [None, None, None, 3, 4, 5, 6]),
        (5, [0, 1, 2, None, None, None, 6]),
        (6, [0, 1, 2, 3, 4, 5, None]),
    ],
)
async def test_results_stay_in_their_places_however_a_shard_fails(
    how: str, breaks: int, results: list[Any]
) -> None:
    played = await play(
        f"""
    workflow:
      - step: loop
        spec:
          loop_mode: fanout
          timeout: {1 if how == "slow" else 60}
          fanout: {{max_shards: 3, allow_partial: true, max_job_retries: 0}}
        loop: {{in: {{range: 7}}, iterator: n}}
        tool: {{kind: fragile, n: "{{{{ iter.n }}}}", breaks: {breaks}, how: {how}}}
        next: [done]
      - {{step: done, tool: {{kind: noop}}}}
    """,
        settings=Settings(max_value=200_000),
        tools=[Fragile],
    )
    assert played.status == "completed", played.error
    assert (played.steps["loop"]["results"], played.steps["loop"]["count"]) == (results, 7)


async def test_which_elements_a_shard_had_is_not_for_a_task_to_say() -> None:
    played = await play(
        """
    workflow:
      - step: loop
        spec: {loop_mode: fanout, fanout: {allow_partial: true, max_job_retries: 0}}
        loop: {in: {range: 3}, iterator: n}
        tool: {kind: fragile, n: "{{ iter.n }}", breaks: 1, how: lies}
        next: [done]
      - {step: done, tool: {kind: noop}}
    """,
        tools=[Fragile],
    )
    assert played.steps["loop"] == {"results": [0, None, 2], "count": 3}


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
async def test_an_arc_may_take_up_an_element_whose_result_is_too_large(mode: str) -> None:
    played = await play(
        f"""
    workflow:
      - step: loop
        loop: {{in: [0, 1, 2], iterator: n, spec: {{mode: {mode}}}}}
        tool: {{kind: fragile, n: "{{{{ iter.n }}}}", breaks: 1, how: large}}
        next: [{{step: mend, when: "{{{{ event.name == 'step.failed' }}}}"}}]
      - {{step: mend, tool: {{kind: python, code: result = 1}}}}
    """,
        settings=Settings(max_value=200_000),
        tools=[Fragile],
    )
    assert (played.status, played.steps["mend"]) == ("completed", 1)
    (error,) = [message.error for message in played.told if message.error is not None]
    assert (error.code, (error.details or {})["iter_index"]) == ("VALUE_TOO_LARGE", 1)


async def test_what_a_task_in_a_loop_raises_is_told_as_itself() -> None:
    played = await play(
        """
    workflow:
      - step: loop
        loop: {in: [0, 1, 2], iterator: n, spec: {mode: parallel}}
        tool: {kind: fragile, n: "{{ iter.n }}", breaks: 1, how: raises}
    """,
        tools=[Fragile],
    )
    assert played.error is not None
    assert (played.error.code, played.error.message) == ("NODE_RAISED", "RuntimeError: broken")


async def test_a_loop_that_is_cut_off_while_it_keeps_a_result_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = compiled(
        whole("""
    workflow:
      - step: loop
        loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
        tool: {kind: python, code: "result = 'x' * 100_000"}
    """)
    )
    settings, database = Settings(), str(tmp_path / "rune.db")
    async with Embedded.open(settings, node_types(settings), database) as rune:

        async def put(execution: str, values: Mapping[str, bytes]) -> None:
            raise InfrastructureError("gone for a while")

        execution = await rune.start(flow)
        monkeypatch.setattr(rune.state, "put", put)
        with pytest.raises(InfrastructureError, match="for a while"):
            await rune.result(execution)
    async with Embedded.open(settings, node_types(settings), database) as rune:
        completion = await rune.result(execution)
    assert completion.status == "completed", completion.error


async def test_a_shard_that_shares_what_cannot_be_folded_has_failed_and_no_other() -> None:
    played = await play("""
    workflow:
      - step: loop
        spec:
          loop_mode: fanout
          fanout: {allow_partial: true, max_job_retries: 0, reducers: {total: sum}}
        loop: {in: [1, two, 3], iterator: n}
        tool: {kind: noop, eval: [{else: {do: continue, set_shared: {total: "{{ iter.n }}"}}}]}
        next: [{step: told, args: {fanin: "{{ fanin }}"}}]
      - {step: told, tool: {kind: python, code: "result = [fanin['status'], fanin['failed']]"}}
    """)
    assert played.steps["told"] == ["partial", 1], played.error
    assert played.steps["loop"]["shared"] == {"total": 4}
