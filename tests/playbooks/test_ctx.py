"""`ctx` belongs to the execution: what one token writes, all that come later read."""

from __future__ import annotations

import pytest

from tests.playbooks.diamond import DIAMOND
from tests.playbooks.playing import play


@pytest.mark.parametrize("database", [None, "file"])
async def test_a_token_reads_what_another_wrote(database: str | None, tmp_path: object) -> None:
    played = await play(DIAMOND, database=f"{tmp_path}/rune.db" if database else None)
    assert played.status == "completed"
    # Two tokens came to the join; the later one found what both had written.
    assert played.ctx == {"seen": ["begin"], "left": 1, "right": 2, "sum": 3}
    assert played.steps["join"] is None
    assert sorted(played.events("join"))[0] == "step.done"


async def test_a_fanned_out_loop_reads_what_was_written_elsewhere() -> None:
    played = await play("""
    workflow:
      - step: begin
        tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {factor: 3}}}]}
        next: [{step: loop}]
      - step: loop
        spec: {loop_mode: fanout}
        when: "{{ ctx.factor == 3 }}"
        loop: {in: "{{ [ctx.factor, 1] }}", iterator: n}
        tool: {kind: python, args: {n: "{{ iter.n * ctx.factor }}"}, code: result = n}
    """)
    assert played.steps["loop"]["results"] == [9, 3]


async def test_the_final_step_reads_and_writes_it() -> None:
    played = await play("""
    executor: {spec: {final_step: last}}
    workflow:
      - step: begin
        tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {n: 1, m: 1}}}]}
      - step: last
        tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {n: "{{ ctx.n + 1 }}"}}}]}
    """)
    assert played.ctx == {"n": 2, "m": 1}


async def test_a_cycle_counts_in_it() -> None:
    played = await play("""
    workflow:
      - step: count
        tool: {kind: noop, eval: [{else: {do: continue, set_ctx: {n: "{{ (ctx.n | default(0)) + 1 }}"}}}]}
        next: [{step: count, when: "{{ ctx.n < 5 }}"}]
    """)
    assert played.ctx == {"n": 5}
