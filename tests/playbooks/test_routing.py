"""Where tokens go: guards, arguments, both modes of `next`, cycles, failures, the final step."""

from __future__ import annotations

import pytest

from tests.playbooks.playing import play

FAILING = "{kind: python, code: 'raise ValueError(1)'}"


async def test_exclusive_takes_the_first_arc_that_holds_and_inclusive_each() -> None:
    text = """
    workflow:
      - step: start
        spec: {{next_mode: {mode}}}
        tool: {{kind: noop}}
        next:
          - {{step: a, when: "{{{{ workload.n > 5 }}}}"}}
          - {{step: b, when: "{{{{ workload.n > 1 }}}}"}}
          - {{step: c}}
      - {{step: a, tool: {{kind: noop}}}}
      - {{step: b, tool: {{kind: noop}}}}
      - {{step: c, tool: {{kind: noop}}}}
    """
    exclusive = await play(text.format(mode="exclusive"), {"n": 3})
    inclusive = await play(text.format(mode="inclusive"), {"n": 3})
    assert set(exclusive.steps) == {"start", "b"}
    assert set(inclusive.steps) == {"start", "b", "c"}


async def test_a_token_brings_its_own_arguments_along_each_arc() -> None:
    played = await play("""
    workload: {base: 10}
    workflow:
      - step: start
        spec: {next_mode: inclusive}
        tool: {kind: python, code: result = 5}
        next:
          - {step: add, args: {n: "{{ start + workload.base }}"}}
          - {step: add, args: {n: "{{ start - workload.base }}"}}
      - step: add
        tool: {kind: python, code: result = n}
    """)
    given = [m.output for m in played.told if m.node_id == "add" and m.status == "success"]
    assert sorted(b'"result":%d' % n in bytes(output or b"") for output in given for n in (15, -5)) == [
        False,
        False,
        True,
        True,
    ], "two tokens are two runs of the step"


async def test_workload_is_merged_deeply_and_the_request_wins() -> None:
    played = await play(
        """
    workload: {api: {url: u, page: 1}, list: [1, 2]}
    workflow:
      - {step: show, tool: {kind: python, args: {w: "{{ workload }}"}, code: result = w}}
    """,
        {"api": {"page": 2}, "list": [3], "more": True},
    )
    assert played.steps["show"] == {"api": {"url": "u", "page": 2}, "list": [3], "more": True}


async def test_a_cycle_runs_until_its_guard_lets_it_out() -> None:
    played = await play("""
    workflow:
      - step: count
        tool:
          - one:
              kind: noop
              eval: [{else: {do: continue, set_ctx: {n: "{{ (ctx.n | default(0)) + 1 }}"}}}]
        next:
          - {step: count, when: "{{ ctx.n < 5 }}"}
          - {step: done}
      - step: done
        tool: {kind: python, args: {n: "{{ ctx.n }}"}, code: result = n}
    """)
    assert played.steps["done"] == 5
    assert played.ctx == {"n": 5}


async def test_a_step_whose_when_is_false_ends_its_token() -> None:
    played = await play("""
    workflow:
      - {step: start, tool: {kind: noop}, next: maybe}
      - {step: maybe, when: "{{ workload.go | default('no') }}", tool: {kind: noop}, next: after}
      - {step: after, tool: {kind: noop}}
    """)
    assert played.status == "completed"
    assert played.events("maybe") == ["step.skipped"]
    assert "after" not in played.steps


async def test_a_failure_that_an_arc_meets_is_no_failure_of_the_execution() -> None:
    played = await play(f"""
    workflow:
      - step: start
        tool: {FAILING}
        next:
          - {{step: repair, when: "{{{{ event.name == 'step.failed' }}}}"}}
          - {{step: on}}
      - {{step: repair, tool: {{kind: noop}}}}
      - {{step: on, tool: {{kind: noop}}}}
    """)
    assert played.status == "completed"
    assert "repair" in played.steps
    assert "on" not in played.steps
    assert played.events("start") == ["step.failed"]


async def test_an_arc_without_when_is_taken_after_a_failure_too() -> None:
    played = await play(f"""
    workflow:
      - {{step: start, tool: {FAILING}, next: on}}
      - {{step: on, tool: {{kind: noop}}}}
    """)
    assert played.status == "completed"
    assert "on" in played.steps


async def test_a_failure_nobody_meets_fails_the_execution_once_nothing_is_live() -> None:
    played = await play(f"""
    executor: {{spec: {{final_step: bye}}}}
    workflow:
      - step: start
        spec: {{next_mode: inclusive}}
        tool: {{kind: noop}}
        next: [bad, slow]
      - {{step: bad, tool: {FAILING}}}
      - {{step: slow, tool: {{kind: python, code: "import time; time.sleep(0.2); result = 1"}}, next: after}}
      - {{step: after, tool: {{kind: noop}}}}
      - {{step: bye, tool: {{kind: noop}}}}
    """)
    assert played.status == "failed"
    assert played.error is not None
    assert "ValueError: 1" in played.error.message
    done = [m.node_id for m in played.told if m.status == "success"]
    assert done.index("after") < done.index("bye"), "the other branch went on, and the final step came last"
    assert done.count("bye") == 1


async def test_a_token_that_finds_no_arc_is_an_error_only_if_asked() -> None:
    text = """
    executor: {{spec: {{no_next_is_error: {strict}}}}}
    workflow:
      - {{step: start, tool: {{kind: noop}}, next: [{{step: end, when: "{{{{ false }}}}"}}]}}
      - {{step: end, tool: {{kind: noop}}}}
    """
    assert (await play(text.format(strict="false"))).status == "completed"
    strict = await play(text.format(strict="true"))
    assert strict.error is not None
    assert strict.error.code == "PLAYBOOK_NO_NEXT"


async def test_arcs_to_the_final_step_end_there_and_it_runs_once_with_what_they_brought() -> None:
    played = await play("""
    executor: {spec: {final_step: end}}
    workflow:
      - step: start
        spec: {next_mode: inclusive}
        tool: {kind: noop}
        next: [one, {step: end, args: {from: start, first: true}}]
      - step: one
        tool: {kind: python, code: "import time; time.sleep(0.1); result = 1"}
        next: [{step: end, args: {second: true}}]
      - {step: end, tool: {kind: python, args: {one: "{{ one }}"}, code: "result = [one, first, second]"}}
    """)
    assert (played.status, played.steps.get("end")) == ("completed", [1, True, True])
    assert played.events("end") == ["step.done"]


async def test_the_final_step_may_be_the_only_one() -> None:
    played = await play("""
    executor: {spec: {final_step: all}}
    workflow: [{step: all, tool: {kind: python, code: result = 1}}]
    """)
    assert played.steps == {"all": 1}
    assert played.events("all") == ["step.done"]


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_a_step_may_be_called_like_a_scope(mode: str) -> None:
    played = await play(f"""
    executor: {{spec: {{loop_mode: {mode}}}}}
    workload: {{n: 7}}
    workflow:
      - step: ctx
        tool: {{kind: noop, eval: [{{else: {{do: continue, set_ctx: {{a: 1}}}}}}]}}
        next: [{{step: workload, args: {{a: "{{{{ ctx.a }}}}"}}}}]
      - step: workload
        tool: {{kind: python, code: result = a}}
        next: [{{step: shared, args: {{n: "{{{{ workload.n }}}}"}}}}]
      - step: shared
        loop: {{in: [1, 2], iterator: i}}
        tool: {{kind: noop}}
        next: [{{step: last, args: {{n: "{{{{ args.n }}}}", shared: "{{{{ shared }}}}"}}}}]
      - {{step: last, tool: {{kind: python, code: "result = [n, shared]"}}}}
    """)
    assert (played.status, played.steps.get("last")) == ("completed", [7, {}])


async def test_the_entry_step_may_be_named() -> None:
    played = await play("""
    executor: {spec: {entry_step: second}}
    workflow:
      - {step: first, tool: {kind: noop}}
      - {step: second, tool: {kind: noop}}
    """)
    assert set(played.steps) == {"second"}
