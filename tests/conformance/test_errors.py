"""Errors: halt, ignore, branch; errors of items and the policies of splits; retries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.conformance.harness import Rig, flow, node

BOOM = {"message": "boom", "code": "BOOM", "node": "bad"}


# --- halt, ignore, branch ---


async def test_halt_ends_the_execution(rig: Rig) -> None:
    definition = flow([node("a", of=1), node("bad", "boom"), node("never", "effect")], "a > bad > never")
    status, context = await rig.result(definition)
    assert status == "halted"
    assert msgspec.to_builtins(rig.completions[0].error) | {"details": None} == BOOM | {"details": None}
    assert context == {"$trigger": {}, "$a": 1}, "what was known there"
    assert rig.world.runs["never"] == 0


@pytest.mark.parametrize("seed", range(8))
async def test_halted_is_never_followed_by_completed(rigged: Any, seed: int) -> None:
    """FACTS: the product sent `halted`, then `completed`."""
    nodes = [node("a"), node("bad", "boom"), *(node(f"n{i}", "wait") for i in range(3)), node("m", "merge")]
    async with rigged(seed=seed, duplicates=0.5, at_once=3) as rig:
        execution = await rig.start(flow(nodes, "a > bad > m", *(f"a > n{i} > m" for i in range(3))))
        await rig.run()
        assert (await rig.finished(execution)).status == "halted"
        assert {c.status for c in rig.completions} == {"halted"}


async def test_two_failures_end_it_once(rigged: Any) -> None:
    for seed in range(5):
        async with rigged(seed=seed, duplicates=0.5, at_once=4) as rig:
            nodes = [node("a"), node("bad", "boom"), node("worse", "boom", message="worse")]
            execution = await rig.start(flow(nodes, "a > bad", "a > worse"))
            await rig.run()
            assert (await rig.finished(execution)).error.node in ("bad", "worse")


async def test_ignore_goes_on_with_the_error_as_output(rig: Rig) -> None:
    definition = flow(
        [node("bad", "boom", error={"type": "ignore"}), node("next", of="$bad.error.code")], "bad > next"
    )
    status, context = await rig.result(definition)
    assert (status, context["$next"]) == ("completed", "BOOM")


@pytest.mark.parametrize("fails", [True, False])
async def test_branch_takes_the_error_edge_only_on_errors(rig: Rig, fails: bool) -> None:
    definition = flow(
        [
            node("bad", "boom", when=fails, error={"type": "branch"}),
            node("ok", of="ok"),
            node("saved", of=["$error.node", "$error.message", "$error.code"]),
            node("m", "merge"),
        ],
        "bad > ok > m",
        "bad:error > saved > m",
    )
    status, context = await rig.result(definition)
    assert status == "completed"
    assert context["$m"] == {"merged": [["bad", "boom", "BOOM"] if fails else "ok"]}
    assert ("$error" in context, "$ok" in context) == (fails, not fails)


async def test_an_error_edge_straight_to_a_join_brings_the_error(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("bad", "boom", error={"type": "branch"}),
            node("g", "aggregator"),
        ],
        "s > bad > g",
        "bad:error > g",
    )
    _, context = await rig.result(definition, [1])
    assert context["$g"]["aggregated"] == [{"error": BOOM}]
    assert context["$g"]["succeeded"] == 1, "the error was dealt with"


async def test_a_node_that_raises_whatever_it_likes(rig: Rig) -> None:
    status, _ = await rig.result(flow([node("o", "oops")]))
    assert status == "halted"
    assert rig.completions[0].error.code == "NODE_RAISED"
    assert "out of the blue" in rig.completions[0].error.message


async def test_a_reference_to_nothing_names_the_path(rig: Rig) -> None:
    status, _ = await rig.result(flow([node("a", of={"body": 1}), node("b", of="$a.boddy")], "a > b"))
    assert status == "halted"
    assert "boddy" in rig.completions[0].error.message
    assert "body" in rig.completions[0].error.message, "and the nearest key"


# --- splits and aggregators ---


def guarded(error: str, **split: Any) -> dict[str, Any]:
    """A split that fails, under an error policy, with what follows its fan-out and its error path."""
    nodes = [
        node("s", "split", **{"input_array": "$trigger", **split}, error={"type": error}),
        node("b", of="$item"),
        node("g", "aggregator"),
        node("next", of="$g.aggregated"),
    ]
    if error != "branch":
        return flow(nodes, "s > b > g > next")
    return flow([*nodes, node("saved", of="$error.code")], "s > b > g > next", "s:error > saved")


async def test_a_split_of_what_is_no_array_halts(rig: Rig) -> None:
    status, _ = await rig.result(guarded("halt"), {"not": "an array"})
    assert (status, rig.completions[0].error.code) == ("halted", "SPLIT_NOT_ARRAY")


async def test_a_failing_split_under_ignore_is_a_fan_out_of_nothing(rig: Rig) -> None:
    status, context = await rig.result(guarded("ignore"), 5)
    assert (status, context["$next"]) == ("completed", [])


async def test_a_failing_split_under_branch_takes_its_error_edge(rig: Rig) -> None:
    status, context = await rig.result(guarded("branch"), 5)
    assert (status, context["$saved"]) == ("completed", "SPLIT_NOT_ARRAY")
    assert "$next" not in context


@pytest.mark.parametrize("input", [5, [1, 2]])
async def test_merges_behind_a_split_and_its_aggregator_and_their_error_edges(rig: Rig, input: Any) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger", error={"type": "branch"}),
            node("b", of="$item"),
            node("g", "aggregator", error={"type": "branch"}),
            node("m", "merge"),
            node("end", of="{{ $m.merged | length }}"),
        ],
        "s > b > g > m > end",
        "g:error > m",
        "s:error > m",
    )
    status, context = await rig.result(definition, input)
    assert (status, context["$end"]) == ("completed", 1)


# --- items ---


def risky(gather: dict[str, Any] | None = None, **split: Any) -> dict[str, Any]:
    """Items that are 0 fail."""
    nodes = [
        node("s", "split", **{"input_array": "$trigger", **split}),
        node("bad", "boom", when="{{ $item == 0 }}"),
        node("b", of="$item"),
        gather or node("g", "aggregator"),
        node("next", of="$g.aggregated"),
    ]
    return flow(nodes, "s > bad > b > g > next")


@pytest.mark.parametrize("seed", range(3))
async def test_collect_puts_the_error_into_the_slot(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5, at_once=3) as rig:
        status, context = await rig.result(risky(), [1, 0, 2])
        assert status == "completed"
        assert context["$next"] == [1, {"error": BOOM}, 2]
        counts = {k: context["$g"][k] for k in ("count", "succeeded", "failed", "skipped")}
        assert counts == {"count": 3, "succeeded": 2, "failed": 1, "skipped": 0}


@pytest.mark.parametrize(
    ("policy", "items", "fails"),
    [
        ({"on_item_error": "collect"}, [0, 0], False),
        ({"on_item_error": "fail_fast"}, [1, 0, 1], True),
        ({"on_item_error": "fail_fast"}, [1, 1], False),
        ({"on_item_error": "allow_partial"}, [0, 0, 1], False),
        ({"on_item_error": "allow_partial"}, [0, 0], True),
        ({"on_item_error": "allow_partial"}, [], False),
        ({"tolerated_failures": 1}, [0, 1, 1], False),
        ({"tolerated_failures": 1}, [0, 1, 0], True),
        ({"tolerated_failures": 0}, [0], True),
        ({"tolerated_failures": "50%"}, [0, 0, 1, 1], False),
        ({"tolerated_failures": "50%"}, [0, 0, 0, 1], True),
        ({"tolerated_failures": "34%"}, [0, 1], True),
    ],
)
async def test_policies_of_a_split(
    rigged: Any, policy: dict[str, Any], items: list[int], fails: bool
) -> None:
    async with rigged(duplicates=0.3, at_once=2) as rig:
        status, context = await rig.result(risky(**policy), items)
        if not fails:
            assert status == "completed"
            assert context["$next"] == [item or {"error": BOOM} for item in items]
            return
        assert status == "halted", "the aggregator has failed, and its policy is to halt"
        error = rig.completions[0].error
        assert (error.node, error.code) == ("g", "ITEMS_FAILED")
        assert error.details["first_error"] == BOOM


@pytest.mark.parametrize("policy", ["ignore", "branch"])
async def test_a_failed_fan_out_is_its_aggregators_error(rig: Rig, policy: str) -> None:
    definition = risky(node("g", "aggregator", error={"type": policy}), on_item_error="fail_fast")
    definition["nodes"][-1]["parameters"]["of"] = "{{ $g.error.code | default(null) }}"
    if policy == "branch":
        definition["nodes"].append(node("saved", of="$error.code"))
        definition["edges"].append({"id": "e", "src": "g", "dst": "saved", "is_error": True})
    status, context = await rig.result(definition, [0, 1])
    assert status == "completed"
    assert context["$saved" if policy == "branch" else "$next"] == "ITEMS_FAILED"
    assert ("$next" in context) == (policy == "ignore")


@pytest.mark.parametrize("policy", ["halt", "ignore", "branch"])
async def test_a_failed_fan_out_without_aggregator_is_its_splits_error(rig: Rig, policy: str) -> None:
    nodes = [
        node("s", "split", input_array="$trigger", on_item_error="fail_fast", error={"type": policy}),
        node("bad", "boom", when="{{ $item == 0 }}"),
        node("saved", of="$error.code"),
    ]
    if policy == "branch":
        status, context = await rig.result(flow(nodes, "s > bad", "s:error > saved"), [0, 1])
        assert (status, context["$saved"]) == ("completed", "ITEMS_FAILED")
    else:
        status, _ = await rig.result(flow(nodes[:2], "s > bad"), [0, 1])
        assert status == ("halted" if policy == "halt" else "completed")


@pytest.mark.parametrize("seed", range(4))
async def test_a_failed_item_drops_its_other_branches(rigged: Any, seed: int) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("bad", "boom", when="{{ $item == 0 }}"),
            node("w", "wait", amount=10),
            node("late", "effect", of="$item"),
            node("m", "merge"),
            node("g", "aggregator"),
        ],
        "s > bad > m > g",
        "s > w > late > m",
    )
    async with rigged(seed=seed, duplicates=0.3) as rig:
        _, context = await rig.result(definition, [1, 0])
        assert context["$g"]["aggregated"][1] == {"error": BOOM}
        assert rig.world.saw["late"] == [1], "dropped when met"


async def test_a_nested_fan_out_that_fails_fails_its_item(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("t", "split", input_array="$item", on_item_error="fail_fast"),
            node("bad", "boom", when="{{ $item == 0 }}"),
            node("h", "aggregator"),
            node("g", "aggregator", collect="$h.count"),
        ],
        "s > t > bad > h > g",
    )
    _, context = await rig.result(definition, [[1, 1], [1, 0]])
    first, second = context["$g"]["aggregated"]
    assert first == 2
    assert (second["error"]["code"], second["error"]["node"]) == ("ITEMS_FAILED", "h")


@pytest.mark.parametrize("policy", ["halt", "ignore", "branch"])
async def test_an_arrival_that_fails_at_the_aggregator_is_its_items_error(rig: Rig, policy: str) -> None:
    """`collect` is evaluated in the item; the aggregator's own policy is for the fan-out as a whole."""
    gather = node("g", "aggregator", collect="{{ 10 // $item }}", error={"type": policy})
    nodes = [
        node("s", "split", input_array="$trigger"),
        node("b"),
        gather,
        node("next", "effect"),
        node("saved"),
    ]
    ways = ["s > b > g > next", *(["g:error > saved"] if policy == "branch" else [])]
    status, context = await rig.result(flow(nodes if policy == "branch" else nodes[:-1], *ways), [5, 0, 2])
    assert status == "completed"
    first, second, third = context["$g"]["aggregated"]
    assert (first, third) == (2, 5)
    assert second["error"]["node"] == "g"
    assert rig.world.runs["next"] == 1, "what follows a barrier runs once"


# --- retries ---


@pytest.mark.parametrize(
    ("backoff", "rests"), [("fixed", [10, 10, 10]), ("linear", [10, 20, 30]), ("exponential", [10, 20, 40])]
)
async def test_a_retry_rests_and_tries_again(rigged: Any, backoff: str, rests: list[int]) -> None:
    retry = {"attempts": 4, "delay": 10, "backoff": backoff}
    async with rigged(duplicates=1.0) as rig:
        began = rig.clock.now
        definition = flow(
            [node("e", "effect", of=1, fails=3, retry=retry), node("next", of="$e")], "e > next"
        )
        status, context = await rig.result(definition)
        assert (status, context["$next"]) == ("completed", {"done": 1, "attempt": 4})
        assert rig.world.attempts["e"] == [1, 2, 3, 4], "each attempt once, also with every message doubled"
        assert len(set(rig.world.keys["e"])) == 1, "under one key"
        assert rig.clock.now - began == pytest.approx(sum(rests), abs=1)


async def test_exhausted_retries_are_the_nodes_error(calm: Rig) -> None:
    retry = {"attempts": 2, "delay": 1}
    nodes = [
        node("e", "effect", fails=9, retry=retry, error={"type": "branch"}),
        node("saved", of="$error.message"),
    ]
    status, context = await calm.result(flow(nodes, "e:error > saved"))
    assert (status, context["$saved"]) == ("completed", "failed attempt 2")
    assert calm.told("e") == ["running", "failed", "running", "failed"]


async def test_a_retry_without_delay(rig: Rig) -> None:
    definition = flow([node("e", "effect", of=1, fails=2, retry={"attempts": 3})])
    status, context = await rig.result(definition)
    assert (status, context["$e"]["attempt"]) == ("completed", 3)


async def test_a_pure_node_is_retried_too(calm: Rig) -> None:
    definition = flow([node("bad", "boom", retry={"attempts": 3, "delay": 5})])
    status, _ = await calm.result(definition)
    assert status == "halted"
    assert calm.told("bad").count("failed") == 3


async def test_a_retry_in_a_split_leaves_the_other_items_alone(rig: Rig) -> None:
    nodes = [
        node("s", "split", input_array="$trigger", batch_size=10),
        node("e", "effect", of="$item", fails="$item", retry={"attempts": 3, "delay": 100}),
        node("g", "aggregator", collect="$e.attempt"),
    ]
    _, context = await rig.result(flow(nodes, "s > e > g"), [0, 1, 2, 0])
    assert context["$g"]["aggregated"] == [1, 2, 3, 1]


async def test_a_retry_that_is_cancelled_by_its_items_failure(rig: Rig) -> None:
    nodes = [
        node("s", "split", input_array="$trigger"),
        node("e", "effect", of="$item", fails=9, retry={"attempts": 9, "delay": 100}),
        node("bad", "boom"),
        node("g", "aggregator"),
    ]
    status, context = await rig.result(flow(nodes, "s > e > g", "s > bad > g"), [1])
    assert status == "completed"
    assert context["$g"]["aggregated"][0]["error"]["code"] in ("BOOM", "FLAKY")
    assert rig.world.runs["e"] <= 1
