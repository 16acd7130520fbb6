"""Merges: all, any, n; what comes late, what cannot come."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.harness import Rig, flow, node


def race(merge: dict[str, Any], ways: int = 3, dead: int = 0) -> dict[str, Any]:
    """`a` forks into b0, b1 … > merge `m` > `end`; the first `dead` ways end before they get there."""
    nodes = [node("a"), *(node(f"b{i}", of=i) for i in range(ways)), merge, node("end", "effect", of="$m")]
    nodes += [node(f"c{i}", "conditional", expression="false") for i in range(dead)]
    edges = [f"a > b{i} > " + (f"c{i}" if i < dead else "m") for i in range(ways)]
    return flow(nodes, *edges, *(f"c{i}:true > m" for i in range(dead)), "m > end")


@pytest.mark.parametrize("seed", range(6))
async def test_wait_for_all_is_in_edge_order(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5, at_once=4) as rig:
        status, context = await rig.result(race(node("m", "merge"), 5))
        assert (status, context["$m"]) == ("completed", {"merged": [0, 1, 2, 3, 4]})
        assert rig.world.runs["end"] == 1


@pytest.mark.parametrize("seed", range(6))
async def test_wait_for_any_takes_the_first_and_drops_the_rest(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5, at_once=4) as rig:
        status, context = await rig.result(race(node("m", "merge", wait_mode="wait_for_any")))
        assert status == "completed"
        (won,) = context["$m"]["merged"]
        assert context["$m"]["winner"] == f"b{won}"
        assert rig.world.runs["end"] == 1
        assert [k for k in context if k.startswith("$b")] == [f"$b{won}"], "nothing of the others"


@pytest.mark.parametrize("seed", range(6))
async def test_wait_for_n(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5, at_once=4) as rig:
        status, context = await rig.result(race(node("m", "merge", wait_mode="wait_for_n", n=2), 4))
        merged = context["$m"]["merged"]
        assert (status, len(merged)) == ("completed", 2)
        assert merged == sorted(merged)
        assert rig.world.runs["end"] == 1


@pytest.mark.parametrize("seed", range(6))
async def test_n_that_have_become_impossible_fail_with_their_own_code(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5) as rig:
        status, _ = await rig.result(race(node("m", "merge", wait_mode="wait_for_n", n=3), 4, dead=2))
        assert status == "halted"
        assert rig.completions[0].error.code == "MERGE_IMPOSSIBLE"
        assert rig.world.runs["end"] == 0


async def test_impossible_n_under_ignore_and_branch(rig: Rig) -> None:
    merge = node("m", "merge", wait_mode="wait_for_n", n=3, error={"type": "ignore"})
    status, context = await rig.result(race(merge, 3, dead=1))
    assert (status, context["$m"]["error"]["code"]) == ("completed", "MERGE_IMPOSSIBLE")
    merge["error"] = {"type": "branch"}
    definition = race(merge, 3, dead=1)
    definition["nodes"].append(node("saved", of="$error.code"))
    definition["edges"].append({"id": "x", "src": "m", "dst": "saved", "port": "error"})
    status, context = await rig.result(definition)
    assert (status, context["$saved"]) == ("completed", "MERGE_IMPOSSIBLE")


@pytest.mark.parametrize("mode", [{"wait_mode": "wait_for_any"}, {"wait_mode": "wait_for_n", "n": 2}, {}])
async def test_a_merge_that_nobody_reaches_is_dead_and_fails_nothing(rig: Rig, mode: dict[str, Any]) -> None:
    status, context = await rig.result(race(node("m", "merge", **mode), 2, dead=2))
    assert status == "completed"
    assert "$m" not in context
    assert rig.world.runs["end"] == 0


async def test_a_late_arrival_after_the_opening_does_nothing(calm: Rig) -> None:
    definition = flow(
        [
            node("fast", of="fast"),
            node("w", "wait", amount=3600),
            node("slow", of="slow"),
            node("m", "merge", wait_mode="wait_for_any"),
            node("end", "effect", of="$m.merged"),
        ],
        "fast > m > end",
        "w > slow > m",
    )
    status, _ = await calm.result(definition)
    assert status == "completed"
    assert calm.world.saw["end"] == [["fast"]]
    assert calm.told("slow")[-1] == "success"


async def test_a_merge_behind_a_merge_of_any(rigged: Any) -> None:
    definition = flow(
        [
            node("a", of=1),
            node("b", of=2),
            node("c", of=3),
            node("first", "merge", wait_mode="wait_for_any"),
            node("all", "merge"),
            node("end", "effect", of="{{ $all.merged | length }}"),
        ],
        "a > first > all > end",
        "b > first",
        "c > all",
    )
    for seed in range(5):
        async with rigged(seed=seed, duplicates=0.5, at_once=3) as rig:
            status, _ = await rig.result(definition)
            assert status == "completed"
            assert rig.world.saw["end"] == [2]
