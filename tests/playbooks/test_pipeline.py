"""Tasks in order, and what their rules make of their outcomes."""

from __future__ import annotations

import time

from tests.playbooks.playing import play


async def test_tasks_run_in_order_and_see_what_came_before() -> None:
    played = await play("""
    workflow:
      - step: work
        tool:
          - one: {kind: python, code: result = 1}
          - two: {kind: python, args: {p: "{{ _prev }}"}, code: "result = p + 1"}
          - three:
              kind: python
              args: {a: "{{ results.one }}", b: "{{ results.two }}"}
              code: result = [a, b]
    """)
    assert played.steps["work"] == [1, 2]


async def test_a_jump_pages_through_and_a_break_ends_well() -> None:
    played = await play("""
    workflow:
      - step: pages
        tool:
          - init: {kind: noop, eval: [{else: {do: continue, set_iter: {page: 1, all: []}}}]}
          - get:
              kind: python
              args: {page: "{{ iter.page }}"}
              code: "result = {'rows': [page * 10], 'more': page < 3}"
              eval:
                - else:
                    do: continue
                    set_iter: {all: "{{ iter.all + outcome.result.rows }}", more: "{{ outcome.result.more }}"}
          - next:
              kind: noop
              eval:
                - {expr: "{{ iter.more }}", do: jump, to: get, set_iter: {page: "{{ iter.page + 1 }}"}}
                - else: {do: break, set_vars: {all: "{{ iter.all }}"}}
          - never: {kind: python, code: raise ValueError}
        next: [{step: report, args: {all: "{{ vars.all }}"}}]
      - {step: report, tool: {kind: python, code: result = all}}
    """)
    assert played.status == "completed"
    assert played.steps["report"] == [10, 20, 30]


async def test_retry_counts_runs_rests_between_them_and_then_fails() -> None:
    before = time.monotonic()
    played = await play("""
    workflow:
      - step: flaky
        tool:
          - try:
              kind: python
              code: raise ValueError('no')
              eval:
                - expr: "{{ outcome.status == 'error' }}"
                  do: retry
                  attempts: 3
                  delay: 0.05
                  backoff: linear
    """)
    assert time.monotonic() - before >= 0.15, "0.05 s and 0.1 s"
    (told,) = [m for m in played.told if m.node_id == "flaky" and m.status == "failed"]
    assert told.details is not None
    assert [task["attempt"] for task in told.details["tasks"]] == [1, 2, 3]
    assert told.error is not None
    assert told.error.code == "CODE_RAISED"


async def test_an_error_may_be_passed_over_and_leaves_what_came_before() -> None:
    played = await play("""
    workflow:
      - step: work
        tool:
          - good: {kind: python, code: result = 'kept'}
          - bad:
              kind: python
              code: 1/0
              eval: [{expr: "{{ outcome.py.exception == 'ZeroDivisionError' }}", do: continue}]
          - show: {kind: python, args: {p: "{{ _prev }}"}, code: result = p}
    """)
    assert played.steps["work"] == "kept"


async def test_the_first_rule_that_holds_counts_and_one_that_breaks_does_not_hold() -> None:
    played = await play("""
    workflow:
      - step: work
        tool:
          - only:
              kind: python
              code: result = 7
              eval:
                - {expr: "{{ outcome.result.nothing.there > 'x' }}", do: fail}
                - {expr: "{{ outcome.result == 7 }}", do: continue, set_prev: seven}
                - {else: {do: fail}}
          - show: {kind: python, args: {p: "{{ _prev }}"}, code: result = p}
    """)
    assert played.steps["work"] == "seven"


async def test_code_has_neither_our_environment_nor_our_memory() -> None:
    played = await play("""
    workflow:
      - step: look
        tool:
          kind: python
          code: |
            import os, sys
            result = {'names': sorted(os.environ), 'rune': 'rune' in sys.modules}
    """)
    found = played.steps["look"]
    assert found["rune"] is False
    assert set(found["names"]) <= {"PATH", "LC_CTYPE"}


async def test_code_that_takes_too_long_or_too_much_is_ended() -> None:
    played = await play("""
    workflow:
      - {step: long, tool: {kind: python, timeout: 0.3, code: "while True: pass"}, next: large}
      - {step: large, tool: {kind: python, memory: 64, code: "result = 'x' * 10**9"}}
    """)
    failed = {m.node_id: m.error for m in played.told if m.status == "failed"}
    assert failed["long"] is not None
    assert failed["long"].code == "CODE_KILLED"
    assert failed["large"] is not None
    assert "MemoryError" in failed["large"].message


async def test_tasks_that_never_wait_do_not_keep_the_worker_to_themselves() -> None:
    played = await play("""
    workflow:
      - step: endless
        spec: {timeout: 0.3}
        tool:
          - one: {kind: noop}
          - two: {kind: noop, eval: [{else: {do: jump, to: one}}]}
    """)
    assert played.error is not None
    assert played.error.code == "STEP_TIMEOUT"


async def test_a_task_of_the_workbook_brings_its_rules_unless_there_are_others() -> None:
    played = await play("""
    workbook:
      - name: double
        tool:
          kind: python
          code: result = 2 * n
          eval: [{else: {do: continue, set_ctx: {last: "{{ outcome.result }}"}}}]
    workflow:
      - step: work
        tool:
          - first: {kind: workbook, name: double, args: {n: 1}}
          - second: {kind: workbook, name: double, args: {n: "{{ _prev }}"}, eval: [{else: {do: break}}]}
    """)
    assert (played.steps["work"], played.ctx) == (4, {"last": 2})


async def test_a_function_takes_those_arguments_that_it_asks_for() -> None:
    played = await play("""
    workflow:
      - {step: start, tool: {kind: noop}, next: [{step: work, args: {n: 1, other: 2}}]}
      - {step: work, tool: {kind: python, code: "def main(n): return n"}}
    """)
    assert played.steps["work"] == 1


async def test_a_step_has_a_time_limit() -> None:
    played = await play("""
    workflow:
      - {step: slow, spec: {timeout: 0.2}, tool: {kind: python, code: "import time; time.sleep(30)"}}
    """)
    assert played.error is not None
    assert played.error.code == "STEP_TIMEOUT"
