"""Loops on one worker, and the same loops spread over many."""

from __future__ import annotations

import pytest

from tests.playbooks.playing import play, problems_of

SQUARES = """
executor: {{spec: {{loop_mode: {mode}}}}}
workload: {{items: [3, 1, 2]}}
workflow:
  - step: squares
    loop: {{in: "{{{{ workload.items }}}}", iterator: n, spec: {{mode: {order}}}}}
    tool:
      - square: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: result = n * n}}
    next: [{{step: sum, args: {{all: "{{{{ squares.results }}}}"}}}}]
  - {{step: sum, tool: {{kind: python, code: result = sum(all)}}}}
"""


@pytest.mark.parametrize("order", ["sequential", "parallel"])
@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_a_loop_keeps_the_order_of_its_elements(mode: str, order: str) -> None:
    played = await play(SQUARES.format(mode=mode, order=order))
    assert played.steps["squares"] == {"results": [9, 1, 4], "count": 3}
    assert played.steps["sum"] == 14
    assert played.events("squares") == ["loop.done"]


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_an_empty_collection_is_a_loop_that_is_done(mode: str) -> None:
    played = await play(SQUARES.format(mode=mode, order="sequential"), {"items": []})
    assert played.steps["squares"] == {"results": [], "count": 0}


async def test_a_sequential_loop_may_collect_into_vars() -> None:
    played = await play("""
    workflow:
      - step: collect
        loop: {in: [1, 2, 3], iterator: n}
        tool:
          - add:
              kind: noop
              eval: [{else: {do: continue, set_vars: {sum: "{{ (vars.sum | default(0)) + iter.n }}"}}}]
        next: [{step: show, args: {sum: "{{ vars.sum }}"}}]
      - {step: show, tool: {kind: python, code: result = sum}}
    """)
    assert played.steps["show"] == 6


async def test_after_a_failed_iteration_no_more_are_started() -> None:
    played = await play("""
    workflow:
      - step: loop
        loop: {in: [1, 2, 3], iterator: n}
        tool: {kind: python, args: {n: "{{ iter.n }}"}, code: "assert n < 2; result = n"}
    """)
    assert played.status == "failed"
    assert played.error is not None
    assert played.error.details is not None
    assert played.error.details["iter_index"] == 1
    (told,) = [m for m in played.told if m.node_id == "loop" and m.status == "failed"]
    assert told.details is not None
    assert len(told.details["tasks"]) == 2


@pytest.mark.parametrize(
    ("policy", "status", "fanin"),
    [
        ("{max_job_retries: 0}", "failed", "failed"),
        ("{max_job_retries: 0, allow_partial: true}", "completed", "partial"),
        ("{max_job_retries: 0, fail_fast: true}", "failed", "failed"),
    ],
)
async def test_failed_shards_fail_the_step_as_its_policy_says(policy: str, status: str, fanin: str) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: fanout, fanout: {policy}}}
        loop: {{in: [1, 2, 3], iterator: n}}
        tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "assert n != 2; result = n"}}
        next:
          - {{step: seen, when: "{{{{ fanin.status == '{fanin}' and event.name != 'step.failed' }}}}"}}
      - {{step: seen, tool: {{kind: noop}}}}
    """)
    assert played.status == status
    assert ("seen" in played.steps) == (status == "completed")


async def test_a_shard_is_tried_again_as_a_whole() -> None:
    played = await play("""
    workflow:
      - step: loop
        spec: {loop_mode: fanout, fanout: {max_job_retries: 2}}
        loop: {in: [1], iterator: n}
        tool: {kind: python, code: raise ValueError}
    """)
    attempts = [m.attempt for m in played.told if m.node_id == "loop~shard" and m.status == "failed"]
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("order", ["sequential", "parallel"])
@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_reducers_fold_what_iterations_share(mode: str, order: str) -> None:
    text = """
    workflow:
      - step: loop
        spec:
          loop_mode: MODE
          fanout: {reducers: {total: sum, least: min, most: max, all: append, by: merge}}
        loop: {in: [3, 1, 2], iterator: n, spec: {mode: ORDER}}
        tool:
          - one:
              kind: noop
              eval:
                - else:
                    do: continue
                    set_shared:
                      total: "{{ iter.n }}"
                      least: "{{ iter.n }}"
                      most: "{{ iter.n }}"
                      all: "{{ iter.n }}"
                      by: "{{ {'k': iter.n} }}"
        next: [{step: told, args: {total: "{{ shared.total }}"}}]
      - {step: told, tool: {kind: python, code: result = total}}
    """
    played = await play(text.replace("MODE", mode).replace("ORDER", order))
    assert played.steps["told"] == 6
    assert played.steps["loop"]["shared"] == {
        "total": 6,
        "least": 1,
        "most": 3,
        "all": [3, 1, 2],
        "by": {"k": 2},
    }


@pytest.mark.parametrize(
    ("op", "value", "said"),
    [
        ("sum", '"a text"', "the shared value 'it' is a sum: it cannot take string"),
        ("merge", "5", "is a merge"),
        ("max", "\"{{ iter.n if iter.n > 1 else 'x' }}\"", "is a max"),
    ],
)
@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_a_value_that_cannot_be_folded_fails_the_step(
    mode: str, op: str, value: str, said: str
) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: {mode}, fanout: {{max_job_retries: 0, reducers: {{it: {op}}}}}}}
        loop: {{in: [1, 2], iterator: n}}
        tool: {{kind: noop, eval: [{{else: {{do: continue, set_shared: {{it: {value}}}}}}}]}}
        next: [{{step: mend, when: "{{{{ event.name == 'step.failed' }}}}"}}]
      - {{step: mend, tool: {{kind: python, code: result = 1}}}}
    """)
    assert played.steps.get("mend") == 1, played.error
    *shards, error = [m.error for m in played.told if m.error is not None]
    assert said in error.message
    assert {one.code for one in shards or [error]} == {"PLAYBOOK_SHARED"}


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_a_shared_value_that_nobody_declared_fails_the_step(mode: str) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: {mode}, fanout: {{reducers: {{it: sum}}}}}}
        loop: {{in: [1, 2], iterator: n}}
        tool: {{kind: noop, eval: [{{else: {{do: continue, set_shared: "{{{{ {{'other': 1}} }}}}"}}}}]}}
    """)
    assert played.error is not None
    assert "nobody reduces the shared value 'other'" in played.error.message


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_older_playbooks_read_their_vars_in_loops(mode: str) -> None:
    text = f"""
    executor: {{spec: {{loop_mode: {mode}}}}}
    vars: {{items: [1, 2], base: 10}}
    workflow:
      - step: loop
        loop: {{in: "{{{{ vars.items }}}}", iterator: iter}}
        tool: {{kind: python, args: {{n: "{{{{ iter.iter + vars.base }}}}"}}, code: result = n}}
    """
    played = await play(text, compatibility=True)
    assert played.steps["loop"]["results"] == [11, 12]


@pytest.mark.parametrize(
    "fanout", ["loop_mode: local, fanout: {", "loop_mode: fanout, fanout: {max_shards: 1, "]
)
async def test_a_key_that_cannot_be_had_fails_the_step(fanout: str) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{{fanout} max_job_retries: 0, key: "{{{{ 1 / iter.n }}}}"}}}}
        loop: {{in: [1, 0], iterator: n}}
        tool: {{kind: noop}}
        next: [{{step: mend, when: "{{{{ event.name == 'step.failed' }}}}"}}]
      - {{step: mend, tool: {{kind: python, code: result = 1}}}}
    """)
    assert played.steps.get("mend") == 1, played.error


async def test_elements_that_share_a_shard_have_names_of_their_own() -> None:
    played = await play("""
    workflow:
      - step: loop
        spec: {loop_mode: fanout, fanout: {max_shards: 2, key: "k{{ iter.n }}"}}
        loop: {in: [5, 6, 7, 8], iterator: n}
        tool: {kind: python, args: {shard: "{{ shard }}"}, code: result = shard}
    """)
    found = played.steps["loop"]["results"]
    assert [(one["iter_index"], one["iter_key"]) for one in found] == [
        *((0, "k5"), (1, "k6"), (2, "k7"), (3, "k8")),
    ]
    assert [one["shard_id"].removeprefix(one["loop_id"]) for one in found] == [".0", ".0", ".1", ".1"]


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_iterations_know_who_they_are(mode: str) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: {mode}, fanout: {{key: "{{{{ iter.n.id }}}}"}}}}
        loop: {{in: [{{id: a}}, {{id: b}}], iterator: n}}
        tool: {{kind: python, args: {{shard: "{{{{ shard }}}}"}}, code: result = shard}}
    """)
    one, two = played.steps["loop"]["results"]
    assert (one["iter_key"], two["iter_key"]) == ("a", "b")
    assert one["loop_id"] == two["loop_id"]
    assert [one["shard_id"], two["shard_id"]] == [f"{one['loop_id']}.0", f"{one['loop_id']}.1"]


@pytest.mark.parametrize(
    ("spec", "write"),
    [
        ("spec: {loop_mode: fanout}", "set_vars"),
        ("spec: {loop_mode: fanout}", "set_ctx"),
        ("spec: {loop_mode: fanout}", "set_shared"),
    ],
)
def test_shared_writes_are_refused_with_the_line_and_the_reason(spec: str, write: str) -> None:
    (problem,) = problems_of(f"""
workflow:
  - step: loop
    {spec}
    loop: {{in: [1], iterator: n}}
    tool:
      - one:
          kind: noop
          eval:
            - else:
                do: continue
                {write}: {{n: 1}}
""")
    assert problem.code == "E047"
    assert problem.line == 15
    assert "side by side" in problem.message or "reduces" in problem.message


def test_a_parallel_loop_may_not_write_vars() -> None:
    (problem,) = problems_of("""
workflow:
  - step: loop
    loop: {in: [1], iterator: n, spec: {mode: parallel}}
    tool: {kind: noop, eval: [{else: {do: continue, set_vars: {n: 1}}}]}
""")
    assert problem.code == "E047"


@pytest.mark.parametrize("source", ["[10, 11, 12, 13, 14, 15, 16]", "{range: [10, 17]}"])
async def test_more_elements_than_shards_share_them(source: str) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: fanout, fanout: {{max_shards: 3, reducers: {{total: sum}}}}}}
        loop: {{in: {source}, iterator: n}}
        tool:
          - one:
              kind: python
              args: {{n: "{{{{ iter.n }}}}", s: "{{{{ shard.shard_id }}}}"}}
              code: "result = [n, s[-1]]"
              eval: [{{else: {{do: continue, set_shared: {{total: "{{{{ iter.n }}}}"}}}}}}]
    """)
    loop = played.steps["loop"]
    assert loop["results"] == [[10 + n, str(n // 3)] for n in range(7)]
    assert loop["count"] == 7
    assert loop["shared"] == {"total": sum(range(10, 17))}


async def test_the_elements_of_a_failed_shard_are_null() -> None:
    played = await play("""
    workflow:
      - step: loop
        spec: {loop_mode: fanout, fanout: {max_shards: 2, allow_partial: true, max_job_retries: 0}}
        loop: {in: [1, 2, 3, 4], iterator: n}
        tool: {kind: python, args: {n: "{{ iter.n }}"}, code: "assert n != 2; result = n"}
        next: [done]
      - {step: done, tool: {kind: noop}}
    """)
    assert played.steps["loop"]["results"] == [None, None, 3, 4]


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_a_key_that_is_long_is_cut_and_stays_one_of_its_own(mode: str) -> None:
    text = f"""
    workflow:
      - step: loop
        spec: {{loop_mode: {mode}, fanout: {{key: "{{{{ workload.long ~ iter.n }}}}"}}}}
        loop: {{in: [1, 2, 1], iterator: n}}
        tool: {{kind: python, args: {{shard: "{{{{ shard }}}}"}}, code: "result = shard['iter_key']"}}
    """
    played = await play(text, {"long": "x" * 100_000})
    one, two, again = played.steps["loop"]["results"]
    assert (len(one), len(two)) == (200, 200)
    assert one == again != two


@pytest.mark.parametrize("fail_fast", [False, True])
async def test_an_arc_may_take_up_a_loop_that_failed(fail_fast: bool) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: fanout, fanout: {{fail_fast: {str(fail_fast).lower()}, max_job_retries: 0}}}}
        loop: {{in: [0, 1], iterator: n}}
        tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: result = 1 / n}}
        next:
          - {{step: mend, when: "{{{{ event.name == 'step.failed' }}}}", args: {{fanin: "{{{{ fanin }}}}"}}}}
      - {{step: mend, tool: {{kind: python, code: "result = [fanin['status'], fanin['failed']]"}}}}
    """)
    assert played.status == "completed"
    assert played.steps["mend"] == ["failed", 1]
    assert played.events("loop")[-1] == "step.failed"


@pytest.mark.parametrize("fanout", ["{}", "{max_shards: 5}", "{max_shards: 1}"])
async def test_an_element_may_look_like_anything(fanout: str) -> None:
    played = await play(f"""
    workflow:
      - step: loop
        spec: {{loop_mode: fanout, fanout: {fanout}}}
        loop: {{in: [{{"~chunk": Chunk, at: 0, source: [1, 2, 3]}}, 7], iterator: n}}
        tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: result = n}}
    """)
    assert played.steps["loop"]["results"] == [{"~chunk": "Chunk", "at": 0, "source": [1, 2, 3]}, 7]


async def test_a_loop_is_entered_by_what_a_large_result_says() -> None:
    played = await play("""
    workflow:
      - step: fetch
        tool: {kind: python, code: "result = {'go': True, 'rows': ['x' * 1000] * 100}"}
        next: [{step: loop}]
      - step: loop
        spec: {loop_mode: fanout}
        when: "{{ fetch.go }}"
        loop: {in: "{{ fetch.rows[:2] }}", iterator: row}
        tool: {kind: python, args: {row: "{{ iter.row }}"}, code: result = len(row)}
    """)
    assert played.steps["loop"]["results"] == [1000, 1000]


@pytest.mark.parametrize("collection", ["5", "{jsonl: nowhere.jsonl}", '"{{ 1 / 0 }}"'])
@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_an_arc_may_take_up_a_collection_that_cannot_be_had(mode: str, collection: str) -> None:
    played = await play(f"""
    workload: {{five: 5}}
    workflow:
      - step: loop
        spec: {{loop_mode: {mode}}}
        loop: {{in: {collection.replace("5", '"{{ workload.five }}"')}, iterator: n}}
        tool: {{kind: noop}}
        next: [{{step: mend, when: "{{{{ event.name == 'step.failed' }}}}"}}]
      - {{step: mend, tool: {{kind: python, code: result = 1}}}}
    """)
    assert (played.status, played.steps["mend"]) == ("completed", 1)
    assert played.events("loop")[-1] == "step.failed"
