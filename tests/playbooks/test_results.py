"""Results by reference: large ones, many of them, and what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.cli.types import node_types
from rune.core.errors import InfrastructureError
from rune.core.ids import content_hash
from rune.embedded import Embedded
from rune.settings import Settings
from tests.playbooks.playing import Played, compiled, play, whole

LARGE = "result = ['x' * 100] * 1000"
"""Python that gives about 100 kB."""


async def played_with_values(text: str, *, settings: Settings | None = None) -> tuple[Played, dict[str, Any]]:
    """What came of a playbook, and the values that its results refer to, once it is buried."""
    settings = settings or Settings()
    async with Embedded.open(settings, node_types(settings)) as rune:
        execution = await rune.start(compiled(whole(text)), input={})
        completion = await rune.result(execution)
        steps = msgspec.json.decode(completion.final_context["$~verdict"])["steps"]
        await _buried(rune, execution)
        hashes = [ref.removeprefix("rune:") for ref in _refs(steps)]
        found = await rune.state.get(execution, hashes)
    values = {f"rune:{hash}": msgspec.json.decode(data) for hash, data in found.items()}
    return Played(completion.status, completion.error, steps, {}, []), values


async def _buried(rune: Embedded, execution: str) -> None:
    while execution in await rune.live():
        await rune.state.armed(0.01)


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["ref"]] if isinstance(value.get("ref"), str) else []
        return own + [ref for inner in value.values() for ref in _refs(inner)]
    return [ref for inner in value for ref in _refs(inner)] if isinstance(value, list) else []


async def test_a_large_result_is_a_reference_with_a_preview() -> None:
    played, values = await played_with_values(f"""
    workflow:
      - {{step: large, tool: {{kind: python, code: "{LARGE}"}}}}
    """)
    result = played.steps["large"]
    assert (result["kind"], result["store"]) == ("result_ref", "rune")
    assert values[result["ref"]] == ["x" * 100] * 1000
    assert result["meta"]["bytes"] == len(msgspec.json.encode(values[result["ref"]]))
    assert result["preview"] == ["x" * 80 + "…"] * 3


async def test_expressions_see_the_value_itself() -> None:
    played = await play(f"""
    workflow:
      - step: large
        tool:
          - make: {{kind: python, code: "{LARGE}"}}
          - same: {{kind: python, args: {{a: "{{{{ _prev }}}}"}}, code: "result = a"}}
        next:
          - step: count
            when: "{{{{ large | length == 1000 }}}}"
            args: {{n: "{{{{ _prev | length }}}}"}}
      - step: count
        tool: {{kind: python, args: {{all: "{{{{ large }}}}"}}, code: "result = [len(all), n]"}}
        next: [{{step: again, when: "{{{{ large[999] == large[0] }}}}"}}]
      - step: again
        loop: {{in: "{{{{ large }}}}", iterator: x}}
        tool: {{kind: noop}}
    """)
    assert played.status == "completed", played.error
    assert played.steps["count"] == [1000, 1000]
    assert played.steps["again"]["count"] == 1000


LOOP = """
executor: {{spec: {{loop_mode: {mode}}}}}
workflow:
  - step: loop
    loop: {{in: {source}, iterator: n, spec: {{mode: parallel, max_in_flight: 8}}}}
    tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "{code}"}}
    next: [{{step: sum, args: {{length: "{{{{ loop.results | length }}}}"}}}}]
  - step: sum
    tool:
      kind: python
      args: {{all: "{{{{ loop.results }}}}", length: "{{{{ args.length }}}}"}}
      code: "result = [len(all), length, len(all[1]), all[2][-3:]]"
"""


@pytest.mark.parametrize(
    ("source", "code", "manifest"),
    [
        ("[1, 2, 3]", "result = 'abc' + 'x' * n", False),
        ("{range: 40}", "result = 'abc' + str(n) * 1000", True),
        ("[1, 2, 3]", "result = 'abc' * 30000 + str(n)", True),
        ("{range: 12}", "result = 'abc' * 15000", True),
    ],
    ids=["few-and-small", "large-together", "large-each", "several-parts"],
)
async def test_local_and_fanout_keep_results_alike(source: str, code: str, manifest: bool) -> None:
    found = [
        await played_with_values(LOOP.format(mode=mode, source=source, code=code))
        for mode in ("local", "fanout")
    ]
    local, spread = found
    assert local[0].status == "completed", local[0].error
    assert local[0].steps == spread[0].steps
    assert local[1] == spread[1]
    results = local[0].steps["loop"]["results"]
    assert isinstance(results, dict) is manifest
    if manifest:
        assert results["kind"] == "manifest"
        assert results["count"] == sum(part["count"] for part in results["parts"])
        assert results["parts"][0]["at"] == 0
        for part in results["parts"]:
            assert part["bytes"] <= 256 * 1024
            assert content_hash(msgspec.json.encode(local[1][part["ref"]])) == part["ref"].removeprefix(
                "rune:"
            )


async def test_many_results_are_a_manifest_and_a_loop_reads_its_parts() -> None:
    for mode in ("local", "fanout"):
        played = await play(f"""
        executor: {{spec: {{loop_mode: {mode}}}}}
        workflow:
          - step: many
            loop: {{in: {{range: 1100}}, iterator: n}}
            tool: {{kind: noop, eval: [{{else: {{do: continue}}}}]}}
            next: [{{step: again}}]
          - step: again
            loop: {{in: "{{{{ many.results }}}}", iterator: n}}
            tool: {{kind: noop}}
            next: [{{step: counted, args: {{n: "{{{{ again.count }}}}"}}}}]
          - {{step: counted, tool: {{kind: python, code: "result = n"}}}}
        """)
        assert played.status == "completed", played.error
        assert played.steps["many"]["results"]["count"] == 1100
        assert played.steps["counted"] == 1100


async def test_shards_of_several_elements_leave_the_same_results() -> None:
    text = """
    workflow:
      - step: loop
        spec: {{loop_mode: fanout, fanout: {{max_shards: {shards}}}}}
        loop: {{in: {{range: 40}}, iterator: n}}
        tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "result = str(n) * 3000"}}
        next: [{{step: all}}]
      - step: all
        tool: {{kind: python, args: {{all: "{{{{ loop.results }}}}"}}, code: "result = list(map(len, all))"}}
    """
    few, many = [await play(text.format(shards=shards)) for shards in (2, 100)]
    assert few.status == "completed", few.error
    assert few.steps == many.steps
    assert few.steps["all"] == [3000] * 10 + [6000] * 30


async def test_a_reducer_that_appends_much_keeps_a_manifest() -> None:
    played = await play("""
    workflow:
      - step: loop
        spec: {loop_mode: fanout, fanout: {reducers: {sum: sum, low: min, all: append, by: merge}}}
        loop: {in: {range: [1, 1200]}, iterator: n}
        tool:
          kind: noop
          eval:
            - else:
                do: continue
                set_shared: {sum: "{{ iter.n }}", low: "{{ iter.n }}", all: "{{ iter.n }}"}
        next: [{step: show, args: {last: "{{ shared.all[-1] }}", sum: "{{ shared.sum }}"}}]
      - step: show
        tool: {kind: python, args: {all: "{{ loop.shared.all }}"}, code: "result = [last, sum, len(all)]"}
    """)
    shared = played.steps["loop"]["shared"]
    assert (shared["sum"], shared["low"], shared["by"]) == (719400, 1, {})
    assert (shared["all"]["kind"], shared["all"]["count"]) == ("manifest", 1199)
    assert played.steps["show"] == [1199, 719400, 1199]


REDUCE = """
workflow:
  - step: shards
    spec:
      loop_mode: fanout
      fanout: {{key: "item-{{{{ iter.n }}}}", allow_partial: true, max_job_retries: 0}}
    loop: {{in: {source}, iterator: n}}
    tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "{code}"}}
    next: [{{step: reduce, args: {{refs: "{{{{ fanin.refs }}}}"}}}}]
  - step: reduce
    loop: {{in: "{{{{ args.refs }}}}", iterator: shard}}
    tool:
      - get: {{kind: artifact, action: get, ref: "{{{{ iter.shard }}}}"}}
      - size:
          kind: python
          args: {{value: "{{{{ _prev }}}}", shard: "{{{{ iter.shard }}}}"}}
          code: "result = [shard['iter_key'], shard['iter_index'], len(value)]"
"""


async def test_a_reduce_step_reads_what_fanin_refs_name() -> None:
    code = "assert n != 2; result = 'x' * 50000 * n"
    played = await play(REDUCE.format(source="[1, 2, 3]", code=code))
    assert played.status == "completed", played.error
    assert played.steps["reduce"]["results"] == [["item-1", 0, 50_000], ["item-3", 2, 150_000]]


async def test_fanin_refs_pass_on_where_a_shard_has_written() -> None:
    played = await play("""
    workflow:
      - step: write
        spec: {loop_mode: fanout}
        loop: {in: [7], iterator: n}
        tool: {kind: python, code: "result = {'store': 's3', 'key': 'a/b', 'size': 3}"}
        next: [{step: show, args: {refs: "{{ fanin.refs }}"}}]
      - {step: show, tool: {kind: python, code: "result = refs"}}
    """)
    (ref,) = played.steps["show"]
    assert ref["result"] == {"store": "s3", "key": "a/b", "size": 3}
    assert (ref["kind"], ref["iter_index"], ref["iter_key"]) == ("result_ref", 0, "0")
    assert ref["shard_id"].endswith(".0")


async def test_refs_of_very_many_shards_are_the_manifest() -> None:
    played = await play("""
    workflow:
      - step: many
        spec: {loop_mode: fanout}
        loop: {in: {range: 1001}, iterator: n}
        tool: {kind: noop}
        next: [{step: show, args: {refs: "{{ fanin.refs }}"}}]
      - step: show
        tool:
          - get: {kind: artifact, ref: "{{ args.refs }}"}
          - count: {kind: python, args: {all: "{{ _prev }}"}, code: "result = [refs['kind'], len(all)]"}
    """)
    assert played.steps["show"] == ["manifest", 1001]


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("rune:nothing", "is no reference"),
        ("rune:" + "0" * 40, "is gone"),
        ("{{ [1] }}", "is array"),
    ],
)
async def test_a_reference_to_nothing_says_so(ref: str, said: str) -> None:
    played = await play(f"""
    workflow:
      - {{step: get, tool: {{kind: artifact, ref: "{ref}"}}}}
    """)
    assert played.status == "failed"
    assert played.error is not None
    assert said in played.error.message


REF = {"kind": "result_ref", "ref": "rune:" + "0" * 40, "store": "rune"}
MANIFEST = {"kind": "manifest", "store": "rune", "parts": [{"ref": REF["ref"]}]}
POSING = [
    REF,
    MANIFEST,
    {"results": MANIFEST, "count": 1},
    {"results": [], "shared": {"one": REF}},
]
"""What a web service may answer, as anything else."""


@pytest.mark.parametrize("posing", POSING, ids=["result-ref", "manifest", "loop", "shared"])
async def test_data_that_looks_like_a_reference_stays_data(posing: dict[str, Any]) -> None:
    played = await play(
        """
    workflow:
      - step: fetch
        tool: {kind: python, args: {it: "{{ workload.it }}"}, code: result = it}
        next: [{step: look, when: "{{ fetch == workload.it }}"}]
      - step: look
        tool: {kind: python, args: {it: "{{ fetch }}"}, code: "result = {'got': it}"}
    """,
        {"it": posing},
    )
    assert played.status == "completed", played.error
    assert played.steps["look"] == {"got": posing}


@pytest.mark.parametrize("mode", ["local", "fanout"])
async def test_elements_that_look_like_references_stay_data(mode: str) -> None:
    played = await play(
        f"""
    workflow:
      - step: fetch
        spec: {{loop_mode: {mode}, fanout: {{reducers: {{all: append, last: max, by: merge}}}}}}
        loop: {{in: "{{{{ workload.all }}}}", iterator: it}}
        tool:
          kind: python
          args: {{it: "{{{{ iter.it }}}}"}}
          code: result = it
          eval:
            - expr: "{{{{ iter.it.kind == 'result_ref' }}}}"
              do: continue
              set_shared: {{all: "{{{{ iter.it }}}}", last: "{{{{ iter.it }}}}", by: "{{{{ iter.it }}}}"}}
            - else: {{do: continue, set_shared: {{all: "{{{{ iter.it }}}}"}}}}
        next: [look]
      - step: look
        tool:
          kind: python
          args: {{results: "{{{{ fetch.results }}}}", shared: "{{{{ fetch.shared }}}}"}}
          code: "result = [results, shared]"
        next: [again]
      - step: again
        loop: {{in: "{{{{ fetch.results }}}}", iterator: it}}
        tool: {{kind: python, args: {{it: "{{{{ iter.it }}}}"}}, code: "result = it['kind']"}}
    """,
        {"all": POSING[:2]},
    )
    assert played.status == "completed", played.error
    shared = {"all": POSING[:2], "last": REF, "by": REF}
    assert played.steps["look"] == [POSING[:2], shared]
    assert played.steps["again"]["results"] == ["result_ref", "manifest"]


@pytest.mark.parametrize("mode", ["local", "fanout"])
@pytest.mark.parametrize("posing", [REF, MANIFEST, {**REF, "ref": "none of ours"}])
async def test_a_loop_over_what_only_looks_kept_has_failed(mode: str, posing: dict[str, Any]) -> None:
    played = await play(
        f"""
    workflow:
      - step: loop
        spec: {{loop_mode: {mode}}}
        loop: {{in: "{{{{ workload.it }}}}", iterator: it}}
        tool: {{kind: noop}}
        next: [{{step: mend, when: "{{{{ event.name == 'step.failed' }}}}"}}]
      - {{step: mend, tool: {{kind: python, code: result = 1}}}}
    """,
        {"it": posing},
    )
    assert (played.status, played.steps.get("mend")) == ("completed", 1), played.error


async def test_a_secret_is_masked_where_it_is_kept_and_in_what_is_shown_of_it() -> None:
    # The secret stands where a preview cuts texts short.
    code = "result = ['x' * 75 + 's3cret-token'] * 1000"
    text = f"""
    executor: {{{{spec: {{{{loop_mode: {{mode}}}}}}}}}}
    workflow:
      - {{{{step: known, tool: {{{{kind: secrets, auth: door}}}}, next: [large]}}}}
      - {{{{step: large, tool: {{{{kind: python, code: "{code}"}}}}, next: [loop]}}}}
      - {{{{step: loop, loop: {{{{in: [1], iterator: n}}}}, tool: {{{{kind: python, code: "{code}"}}}}}}}}
    """
    for mode in ("local", "fanout"):
        settings = Settings(credentials='{"door": {"token": "s3cret-token"}}')
        played, values = await played_with_values(text.format(mode=mode), settings=settings)
        assert played.status == "completed", played.error
        assert "s3cret" not in str(played.steps)
        assert "s3cret" not in str(values)
        assert played.steps["large"]["preview"][0] == "x" * 75 + "***"


async def test_a_join_that_is_cut_off_while_it_reads_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = compiled(
        whole("""
    workflow:
      - step: loop
        spec: {loop_mode: fanout, fanout: {reducers: {sum: sum}}}
        loop: {in: {range: 1500}, iterator: n}
        tool: {kind: noop, eval: [{else: {do: continue, set_shared: {sum: "{{ iter.n }}"}}}]}
    """)
    )
    settings, database = Settings(), str(tmp_path / "rune.db")
    async with Embedded.open(settings, node_types(settings), database) as rune:
        read = rune.state.slots

        async def slots(execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
            if start:
                raise InfrastructureError("gone in the middle")
            return await read(execution, barrier, start, limit)

        monkeypatch.setattr(rune.state, "slots", slots)
        execution = await rune.start(flow)
        with pytest.raises(InfrastructureError, match="in the middle"):
            await rune.result(execution)
    async with Embedded.open(settings, node_types(settings), database) as rune:
        completion = await rune.result(execution)
    loop = msgspec.json.decode(completion.final_context["$~verdict"])["steps"]["loop"]
    assert (loop["count"], loop["results"]["count"]) == (1500, 1500)
    assert loop["shared"] == {"sum": 1499 * 750}, "each shard is folded once"
