"""Splits and aggregators: order, depth, ghosts, empty arrays, parallel branches in an item."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.flows import fan_out
from tests.conformance.harness import Rig, flow, node


@pytest.mark.parametrize("seed", range(4))
async def test_order_in_is_order_out(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5, at_once=4) as rig:
        status, context = await rig.result(fan_out(node("b", of="{{ $item * 10 + $index }}")), [5, 3, 9, 1])
        assert status == "completed"
        assert context["$g"] == {
            "aggregated": [50, 31, 92, 13],
            "count": 4,
            "succeeded": 4,
            "failed": 0,
            "skipped": 0,
        }


async def test_a_duplicate_of_an_item_does_not_open_the_barrier_early(rig: Rig) -> None:
    """FACTS: aggregate.lua counted item 0 of 3 twice and opened with `"null"`."""
    execution = await rig.start(fan_out(node("b", of={"k": "$item"}), batch_size=1), [0, 1, 2])
    await rig.handle_node("s")
    await rig.fill()
    first = next(d for d in rig.inbox if d.task.lineage_stack[-1].item_index == 0)
    await rig.publish(first.task)
    await rig.run()
    await rig.finished(execution)
    context = await rig.context(execution)
    assert context["$g"]["aggregated"] == [{"k": 0}, {"k": 1}, {"k": 2}], "as values, not as text in text"


async def test_after_the_aggregator_the_context_is_the_splits(rig: Rig) -> None:
    _, context = await rig.result(fan_out(node("b", of="$item")), [1])
    assert context.keys() == {"$trigger", "$s", "$g", "$end"}
    assert context["$s"] == {"count": 1}


@pytest.mark.parametrize("seed", range(4))
async def test_nested_two_by_two(rigged: Any, seed: int) -> None:
    """FACTS: nested splits shared one barrier; a 2×2 gave three completions."""
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("t", "split", input_array="$item"),
            node("b", of={"items": "$items", "index": "$index", "item": "$item"}),
            node("h", "aggregator"),
            node("x", of=["$item", "$index", "$h.aggregated"]),
            node("g", "aggregator"),
        ],
        "s > t > b > h > x > g",
    )
    async with rigged(seed=seed, duplicates=0.5, at_once=3) as rig:
        status, context = await rig.result(definition, [[1, 2], [3, 4]])
        assert status == "completed"
        assert len({c.completed_at for c in rig.completions}) == 1

        def inner(outer: list[int]) -> list[Any]:
            return [{"items": [outer, item], "index": i, "item": item} for i, item in enumerate(outer)]

        assert context["$g"]["aggregated"] == [[[1, 2], 0, inner([1, 2])], [[3, 4], 1, inner([3, 4])]]


async def test_three_deep(rig: Rig) -> None:
    definition = flow(
        [
            *(node(f"s{d}", "split", input_array="$item" if d else "$trigger") for d in range(3)),
            node("b", of="$items"),
            *(
                node(f"g{d}", "aggregator", collect="$json" if d == 2 else f"$g{d + 1}.aggregated")
                for d in (2, 1, 0)
            ),
        ],
        "s0 > s1 > s2 > b > g2 > g1 > g0",
    )
    data = [[[1, 2], [3]], [[4]]]
    _, context = await rig.result(definition, data)
    expected = [[[[a, b, c] for c in b] for b in a] for a in data]
    assert context["$g0"]["aggregated"] == expected


async def test_an_inner_split_under_many_outer_items_has_a_barrier_for_each(rigged: Any) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("t", "split", input_array="{{ range($item) }}"),
            node("b", of="{{ $items[0] * 1000 + $item }}"),
            node("h", "aggregator"),
            node("g", "aggregator", collect="$h.aggregated"),
        ],
        "s > t > b > h > g",
    )
    sizes = [i % 5 for i in range(60)]
    async with rigged(duplicates=0.2, at_once=5) as rig:
        _, context = await rig.result(definition, sizes)
        assert context["$g"]["aggregated"] == [[n * 1000 + i for i in range(n)] for n in sizes]


async def test_a_merge_inside_a_split_waits_for_its_own_item(rigged: Any) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("l", of="{{ $item * 2 }}"),
            node("r", of="{{ $item * 3 }}"),
            node("m", "merge"),
            node("g", "aggregator"),
        ],
        "s > l > m > g",
        "s > r > m",
    )
    async with rigged(duplicates=0.5, at_once=4) as rig:
        _, context = await rig.result(definition, [1, 2, 3])
        assert context["$g"]["aggregated"] == [{"merged": [2 * i, 3 * i]} for i in (1, 2, 3)]


# --- ghosts and empty arrays ---

GHOSTS = flow(
    [
        node("s", "split", input_array="$trigger"),
        node("c", "conditional", expression="$item > 2"),
        node("b", of="$item"),
        node("g", "aggregator"),
        node("end", of="$g.aggregated"),
    ],
    "s > c",
    "c:true > b > g > end",
)


@pytest.mark.parametrize("items", [[1, 3, 2, 5], [1, 2], [3]])
async def test_items_that_end_early_are_null_and_counted_as_skipped(rigged: Any, items: list[int]) -> None:
    async with rigged(duplicates=0.5) as rig:
        status, context = await rig.result(GHOSTS, items)
        assert status == "completed"
        assert context["$end"] == [i if i > 2 else None for i in items]
        assert context["$g"]["skipped"] == sum(i <= 2 for i in items)


async def test_ghosts_below_ghosts(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("t", "split", input_array="$item"),
            node("c", "conditional", expression="$item > 2"),
            node("h", "aggregator"),
            node("d", "conditional", expression="$h.succeeded > 0"),
            node("x", of="$h.aggregated"),
            node("g", "aggregator"),
        ],
        "s > t > c",
        "c:true > h > d",
        "d:true > x > g",
    )
    _, context = await rig.result(definition, [[1, 2], [1, 3], []])
    assert context["$g"]["aggregated"] == [None, [None, {"result": True}], None]


async def test_an_empty_array_opens_the_aggregator_at_once(rig: Rig) -> None:
    status, context = await rig.result(fan_out(node("b")), [])
    assert status == "completed"
    assert context["$g"] == {"aggregated": [], "count": 0, "succeeded": 0, "failed": 0, "skipped": 0}
    assert "$end" in context


async def test_empty_arrays_inside(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("t", "split", input_array="$item"),
            node("b", of="$item"),
            node("h", "aggregator"),
            node("g", "aggregator", collect="$h.aggregated"),
        ],
        "s > t > b > h > g",
    )
    _, context = await rig.result(definition, [[], [1], []])
    assert context["$g"]["aggregated"] == [[], [1], []]


@pytest.mark.parametrize("items", [[], [1], [1, 2, 3]])
async def test_without_an_aggregator_the_branch_ends_with_its_last_item(
    rigged: Any, items: list[int]
) -> None:
    definition = flow(
        [node("s", "split", input_array="$trigger"), node("b", "effect", of="$item"), node("other")], "s > b"
    )
    async with rigged(duplicates=0.5) as rig:
        status, context = await rig.result(definition, items)
        assert status == "completed"
        assert sorted(rig.world.saw["b"]) == items
        assert context["$s"] == {"count": len(items)}
        assert "$other" in context


async def test_a_split_without_a_body_is_a_leaf(rig: Rig) -> None:
    status, context = await rig.result(flow([node("s", "split", input_array="$trigger")]), [1, 2])
    assert (status, context["$s"]) == ("completed", {"count": 2})


# --- several branches in an item ---


@pytest.mark.parametrize("seed", range(4))
async def test_parallel_branches_of_an_item_arrive_as_an_object_by_node(rigged: Any, seed: int) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("l", of="l{{ $item }}"),
            node("r", of="r{{ $item }}"),
            node("g", "aggregator"),
        ],
        "s > l > g",
        "s > r > g",
    )
    async with rigged(seed=seed, duplicates=0.5, at_once=3) as rig:
        _, context = await rig.result(definition, [1, 2])
        assert context["$g"]["aggregated"] == [{"l": "l1", "r": "r1"}, {"l": "l2", "r": "r2"}]
        assert context["$g"]["succeeded"] == 2


@pytest.mark.parametrize("seed", range(4))
async def test_where_one_node_came_twice_it_is_a_list(rigged: Any, seed: int) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("l", of="l"),
            node("r", of="r"),
            node("x", of="{{ $json ~ $item }}"),
            node("g", "aggregator"),
        ],
        "s > l > x > g",
        "s > r > x",
        "r > g",
    )
    async with rigged(seed=seed) as rig:
        _, context = await rig.result(definition, [1])
        assert context["$g"]["aggregated"] == [{"x": ["l1", "r1"], "r": "r"}]


async def test_one_branch_arrives_the_other_ends_early(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("l", of="$item"),
            node("r"),
            node("g", "aggregator"),
        ],
        "s > l > g",
        "s > r",
    )
    _, context = await rig.result(definition, [1, 2])
    assert context["$g"]["aggregated"] == [1, 2]


async def test_collect_is_evaluated_in_the_items_branch(rig: Rig) -> None:
    gather = node("g", "aggregator", collect="{{ {'i': $index, 'sum': $b + $item} }}")
    _, context = await rig.result(fan_out(node("b", of=10), gather=gather), [1, 2])
    assert context["$g"]["aggregated"] == [{"i": 0, "sum": 11}, {"i": 1, "sum": 12}]


# --- the lineage on the wire ---


async def test_the_lineage_stack_of_rfc_004(rig: Rig) -> None:
    execution = await rig.start(fan_out(node("b"), batch_size=1), ["x", "y"])
    await rig.run()
    await rig.finished(execution)
    frames = [t.lineage_stack for t in rig.tasks if t.current_node == "b"]
    assert sorted((f.split_node_id, f.item_index, f.total_items, f.branch_id) for (f,) in frames) == [
        ("s", 0, 2, f"{execution}_s_0"),
        ("s", 1, 2, f"{execution}_s_1"),
    ]
    assert all(t.from_node == "s" for t in rig.tasks if t.current_node == "b")
    assert all(t.lineage_stack == () for t in rig.tasks if t.current_node == "end")


# --- reducers ---


@pytest.mark.parametrize("seed", range(3))
async def test_reducers(rigged: Any, seed: int) -> None:
    ops = {op: {"op": op, "value": "$item.n"} for op in ("sum", "min", "max", "mean", "append", "count")}
    ops["merge"] = {"op": "merge", "value": "$item.o"}
    items = [{"n": n, "o": {f"k{n % 3}": n}} for n in (5, 1, 4, 0, 2)]
    async with rigged(seed=seed, duplicates=0.5, at_once=3) as rig:
        _, context = await rig.result(fan_out(node("b"), gather=node("g", "aggregator", reduce=ops)), items)
        assert context["$g"]["reduced"] == {
            "sum": 12,
            "min": 0,
            "max": 5,
            "mean": 2.4,
            "append": [5, 1, 4, 0, 2],
            "count": 4,
            "merge": {"k2": 2, "k1": 4, "k0": 0},
        }
        assert "aggregated" not in context["$g"]


async def test_sums_of_floats_do_not_depend_on_the_order_of_arrival(rigged: Any) -> None:
    items = [1e16, 1.0, -1e16, 0.1, 0.2, 1e-9] * 20
    sums = set()
    for seed in range(5):
        async with rigged(seed=seed, at_once=4) as rig:
            gather = node("g", "aggregator", reduce="sum")
            _, context = await rig.result(fan_out(node("b", of="$item"), gather=gather, batch_size=3), items)
            sums.add(context["$g"]["reduced"])
    assert len(sums) == 1
    assert sums.pop() == pytest.approx(20 * (1.0 + 0.1 + 0.2 + 1e-9), abs=1e-6)


async def test_reducing_nothing(rig: Rig) -> None:
    ops = {op: {"op": op} for op in ("sum", "count", "min", "max", "mean", "append", "merge")}
    _, context = await rig.result(fan_out(node("b"), gather=node("g", "aggregator", reduce=ops)), [])
    assert context["$g"]["reduced"] == {
        "sum": 0,
        "count": 0,
        "min": None,
        "max": None,
        "mean": None,
        "append": [],
        "merge": {},
    }


async def test_failed_and_skipped_items_are_not_folded(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("c", "conditional", expression="$item != 2"),
            node("r", "boom", when="{{ $item == 3 }}"),
            node(
                "g",
                "aggregator",
                reduce={"total": {"op": "sum", "value": "$item"}, "all": {"op": "append", "value": "$item"}},
            ),
        ],
        "s > c",
        "c:true > r > g",
    )
    _, context = await rig.result(definition, [1, 2, 3, 4])
    assert context["$g"] == {
        "count": 4,
        "succeeded": 2,
        "failed": 1,
        "skipped": 1,
        "reduced": {"total": 5, "all": [1, 4]},
    }
