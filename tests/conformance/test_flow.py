"""Chains, forks, leaves, entries and conditions: an execution ends once, with all that was found out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.harness import Rig, edge, flow, node


async def test_a_chain_passes_its_context_on(rig: Rig) -> None:
    status, context = await rig.result(
        flow([node("a", of=1), node("b", of="{{ $a + 1 }}"), node("c", of=["$a", "$b"])], "a > b > c"),
        {"x": 0},
    )
    assert status == "completed"
    assert context == {"$trigger": {"x": 0}, "$a": 1, "$b": 2, "$c": [1, 2]}


async def test_a_plain_chain_asks_state_only_at_its_start_and_end(inside: Any) -> None:
    async with inside() as rig:
        await rig.result(flow([node(f"n{i}", of=i) for i in range(6)], "n0 > n1 > n2 > n3 > n4 > n5"))
        assert rig.faults.names.count("apply") == 1
        assert "lease" not in rig.faults.names


async def test_what_the_caller_put_in_is_kept(rig: Rig) -> None:
    _, context = await rig.result(
        flow([node("a", of="$mine.key")]), None, **{"$mine": {"key": "v"}, "other": [1]}
    )
    assert context["$a"] == "v"
    assert context["$mine"] == {"key": "v"}
    assert context["other"] == [1]


async def test_two_leaves_give_one_completion_with_both_contexts(calm: Rig) -> None:
    status, context = await calm.result(
        flow([node("a"), node("b", of="b"), node("c", of="c")], "a > b", "a > c")
    )
    assert status == "completed"
    assert context == {"$trigger": {}, "$a": None, "$b": "b", "$c": "c"}
    assert len(calm.completions) == 1


@pytest.mark.parametrize("seed", range(8))
async def test_leaves_are_united_in_the_order_of_the_edges(rigged: Any, seed: int) -> None:
    nodes = [node("a"), *(node(f"e{i}", "edit", assignments=[{"name": "by", "value": i}]) for i in range(4))]
    async with rigged(seed=seed) as rig:
        _, context = await rig.result(flow(nodes, *(f"a > e{i}" for i in (2, 0, 3, 1))))
        assert context["$json"] == {"by": 1}, "the last edge's branch has the last word"


async def test_several_entries_are_one_execution(rig: Rig) -> None:
    status, context = await rig.result(
        flow([node("a", of=1), node("b", of=2), node("m", "merge")], "a > m", "b > m")
    )
    assert status == "completed"
    assert context["$m"] == {"merged": [1, 2]}


async def test_all_successors_of_the_trigger_are_entries(rig: Rig) -> None:
    nodes = [node("t", "ManualTrigger"), node("a", of="$t.n"), node("b", of="{{ $json.n + 1 }}")]
    _, context = await rig.result(flow(nodes, "t > a", "t > b"), {"n": 5})
    assert (context["$a"], context["$b"]) == (5, 6)


async def test_a_node_with_two_parents_that_is_no_merge_runs_for_each(rigged: Any) -> None:
    async with rigged(duplicates=1.0) as rig:
        nodes = [node("a"), node("b", of="b"), node("c", of="c"), node("d", "effect", of="$json")]
        status, _ = await rig.result(flow(nodes, "a > b > d", "a > c > d"))
        assert status == "completed"
        assert sorted(rig.world.saw["d"]) == ["b", "c"]


@pytest.mark.parametrize("seed", range(6))
async def test_a_leaf_whose_news_opens_a_merge_still_counts(rigged: Any, seed: int) -> None:
    nodes = [node("a", of=1), node("c", "conditional", expression="false"), node("m", "merge")]
    async with rigged(seed=seed) as rig:
        _, context = await rig.result(flow(nodes, "a > m", "c:true > m"))
        assert context["$c"] == {"result": False}
        assert context["$m"] == {"merged": [1]}


# --- started by hand ---


def by_hand(
    execution: str, definition: dict[str, Any], node: str, context: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """A NodeExecutionMessage with exactly the fields of RFC 001 §6.1, and those given."""
    return {
        "workflow_id": "wf",
        "execution_id": execution,
        "current_node": node,
        "workflow_definition": definition,
        "accumulated_context": context,
        **more,
    }


async def test_a_message_with_exactly_the_fields_of_rfc_001_runs(rig: Rig) -> None:
    execution = rig.name()
    definition = flow([node("a", of="$trigger.n"), node("b", of="{{ $a + 1 }}")], "a > b")
    await rig.publish(by_hand(execution, definition, "a", {"$trigger": {"n": 1}}))
    await rig.run()
    assert (await rig.finished(execution)).status == "completed"
    assert await rig.context(execution) == {"$trigger": {"n": 1}, "$a": 1, "$b": 2}


async def test_a_message_by_hand_that_comes_twice_runs_once(rig: Rig) -> None:
    execution = rig.name()
    definition = flow([node("a", "effect", of=1), node("b")], "a > b")
    for _ in range(2):
        await rig.publish(by_hand(execution, definition, "a", {}))
    await rig.run()
    await rig.finished(execution)
    assert rig.world.runs["a"] == 1


async def test_started_in_mid_graph_joins_count_from_there(rig: Rig) -> None:
    execution = rig.name()
    nodes = [node("a"), node("b", of=1), node("c", of=2), node("d", of=3), node("m", "merge"), node("end")]
    definition = flow(nodes, "a > b > m > end", "a > c > m", "b > d > m")
    await rig.publish(by_hand(execution, definition, "b", {"$a": "given"}))
    await rig.run()
    await rig.finished(execution)
    context = await rig.context(execution)
    assert context["$m"] == {"merged": [1, 3]}, "nothing can come by way of c"
    assert context["$a"] == "given"


async def test_started_at_one_of_several_entries(rig: Rig) -> None:
    execution = rig.name()
    definition = flow([node("a", of=1), node("b", of=2), node("m", "merge")], "a > m", "b > m")
    await rig.publish(by_hand(execution, definition, "b", {}))
    await rig.run()
    await rig.finished(execution)
    assert (await rig.context(execution))["$m"] == {"merged": [2]}


@pytest.mark.parametrize("seed", range(4))
async def test_a_lineage_by_hand_fills_the_aggregator(rigged: Any, seed: int) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("b", of="$item"),
            node("g", "aggregator"),
            node("e"),
        ],
        "s > b > g > e",
    )
    async with rigged(seed=seed) as rig:
        execution = rig.name()
        for i in range(3):
            frame = {
                "split_node_id": "s",
                "branch_id": f"{execution}_s_{i}",
                "item_index": i,
                "total_items": 3,
            }
            context = {"$item": i * 10, "$s": {"count": 3}}
            await rig.publish(by_hand(execution, definition, "b", context, lineage_stack=[frame]))
        await rig.run()
        await rig.finished(execution)
        assert (await rig.context(execution))["$g"]["aggregated"] == [0, 10, 20]


async def test_a_message_by_hand_at_the_aggregator_itself(rig: Rig) -> None:
    execution = rig.name()
    definition = flow(
        [node("s", "split", input_array="$trigger"), node("b", of="$item"), node("g", "aggregator")],
        "s > b > g",
    )
    for i in range(2):
        frame = {"split_node_id": "s", "branch_id": f"x_{i}", "item_index": i, "total_items": 2}
        message = by_hand(execution, definition, "g", {"$b": {"n": i}}, lineage_stack=[frame], from_node="b")
        await rig.publish(message)
    await rig.run()
    await rig.finished(execution)
    assert (await rig.context(execution))["$g"]["aggregated"] == [{"n": 0}, {"n": 1}]


# --- conditions ---


@pytest.mark.parametrize(("value", "taken"), [(5, "yes"), (1, "no")])
async def test_merge_after_a_condition(rig: Rig, value: int, taken: str) -> None:
    nodes = [
        node("c", "conditional", expression="$trigger > 3"),
        node("yes", of="yes"),
        node("no", of="no"),
        node("m", "merge"),
        node("end", of="$m.merged"),
    ]
    status, context = await rig.result(flow(nodes, "c:true > yes > m > end", "c:false > no > m"), value)
    assert status == "completed"
    assert context["$end"] == [taken]
    assert ("$yes" in context, "$no" in context) == (taken == "yes", taken == "no")


@pytest.mark.parametrize(("value", "taken"), [(0, "zero"), (1, "one"), (7, "other")])
async def test_switch_tells_all_the_ways_not_taken(rig: Rig, value: int, taken: str) -> None:
    rules = [{"value": "$trigger", "operator": "eq", "compare": i} for i in range(2)]
    nodes = [
        node("s", "switch", rules=rules),
        *(node(n, of=n) for n in ("zero", "one", "other")),
        node("m", "merge"),
    ]
    ways = ("s:0 > zero > m", "s:1 > one > m", "s:fallback > other > m")
    _, context = await rig.result(flow(nodes, *ways), value)
    assert context["$m"] == {"merged": [taken]}


@pytest.mark.parametrize("seed", range(6))
async def test_dead_merges_are_passed_on(rigged: Any, seed: int) -> None:
    nodes = [
        node("c", "conditional", expression="false"),
        *(node(n) for n in ("x", "y")),
        *(node(m, "merge") for m in ("m1", "m2", "m3", "m4")),
        node("alive", of="alive"),
        node("end", of="$m4.merged"),
    ]
    ways = ("c:true > x > m1 > m2 > m3 > m4 > end", "c:true > y > m1", "x > m2", "y > m3", "alive > m4")
    async with rigged(seed=seed, duplicates=0.5) as rig:
        status, context = await rig.result(flow(nodes, *ways))
        assert status == "completed"
        assert context["$end"] == ["alive"]
        assert not {"$m1", "$m2", "$m3", "$x", "$y"} & context.keys()


async def test_if_nothing_lives_the_execution_still_ends(rig: Rig) -> None:
    nodes = [node("c", "conditional", expression="false"), node("x"), node("m", "merge"), node("end")]
    status, context = await rig.result(flow(nodes, "c:true > x > m > end", "c:true > m"))
    assert status == "completed"
    assert context == {"$trigger": {}, "$c": {"result": False}}


async def test_a_dead_way_passes_a_split_as_one_node(rig: Rig) -> None:
    nodes = [
        node("c", "conditional", expression="false"),
        node("s", "split", input_array="$trigger"),
        node("b"),
        node("g", "aggregator"),
        node("other", of=1),
        node("m", "merge"),
    ]
    status, context = await rig.result(flow(nodes, "c:true > s > b > g > m", "other > m"), [1, 2])
    assert (status, context["$m"]) == ("completed", {"merged": [1]})


async def test_a_condition_in_a_diamond_of_plain_nodes(rig: Rig) -> None:
    """Two branches pass the same condition: the merge expects both, twice."""
    nodes = [
        node("a"),
        node("b1", of=1),
        node("b2", of=2),
        node("c", "conditional", expression="$json == 1"),
        node("yes"),
        node("m", "merge"),
        node("end", of="{{ $m.merged | length }}"),
    ]
    ways = ("a > b1 > c", "a > b2 > c", "c:true > yes > m > end", "c:false > m")
    status, context = await rig.result(flow(nodes, *ways))
    assert (status, context["$end"]) == ("completed", 2)


async def test_contexts_after_a_merge_have_nothing_of_the_last_arriver(rigged: Any) -> None:
    nodes = [
        node("a", "edit", assignments=[{"name": "by", "value": "a"}]),
        node("left", "edit", assignments=[{"name": "by", "value": "left"}]),
        node("right", of=1),
        node("m", "merge"),
        node("seen", of=["$json", "$left", "$right"]),
    ]
    definition = flow(nodes, "a > left > m > seen", "a > right > m")
    for seed in range(6):
        async with rigged(seed=seed) as rig:
            _, context = await rig.result(definition)
            assert context["$seen"][0] == {"by": "left"}, "what a branch added stays, whoever came last"


async def test_the_later_edge_wins_where_two_branches_set_the_same_name(rigged: Any) -> None:
    nodes = [
        node("a"),
        node("left", "edit", assignments=[{"name": "by", "value": "left"}]),
        node("right", "edit", assignments=[{"name": "by", "value": "right"}]),
        node("m", "merge"),
        node("seen", of="$json"),
    ]
    definition = flow(nodes, "a > left", "a > right", edge("right", "m"), edge("left", "m"), "m > seen")
    for seed in range(6):
        async with rigged(seed=seed) as rig:
            _, context = await rig.result(definition)
            assert context["$m"] == {"merged": [{"by": "right"}, {"by": "left"}]}
            assert context["$seen"] == {"by": "left"}


async def test_arrivals_along_one_edge_are_in_the_order_of_their_paths(rigged: Any) -> None:
    nodes = [node("a"), *(node(f"b{i}", of=i) for i in range(5)), node("x", of="$json"), node("m", "merge")]
    definition = flow(nodes, *(f"a > b{i} > x" for i in range(5)), "x > m")
    for seed in range(4):
        async with rigged(seed=seed) as rig:
            _, context = await rig.result(definition)
            assert context["$m"] == {"merged": [0, 1, 2, 3, 4]}
