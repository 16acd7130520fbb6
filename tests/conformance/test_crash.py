"""Whenever a process dies, before or after any call of a port, the next one comes to the same end."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.conformance.backends import FLEET, INSIDE, rig_inside, rig_on
from tests.conformance.extent import sample, share
from tests.conformance.harness import GENEROUS, flow, node
from tests.conformance.inside import Inside
from tests.conformance.outside import Outside

LINEAR = flow([node("a", "effect", of=1), node("b", of="$a.done"), node("c", "dice")], "a > b > c")

NESTED = flow(
    [
        node("users", "split", input_array="$trigger"),
        node("orders", "split", input_array="$item"),
        node("ship", "effect", of="$item"),
        node("left"),
        node("right", "wait", amount=60),
        node("both", "merge"),
        node("per_user", "aggregator", collect="$item"),
        node("all", "aggregator"),
        node("end", of="$all.aggregated"),
    ],
    "users > orders > ship > left > both > per_user > all > end",
    "ship > right > both",
)

ITEM_ERROR = flow(
    [
        node("s", "split", input_array="$trigger"),
        node("risky", "boom", when="{{ $item == 2 }}"),
        node("fine", "effect", of="$item"),
        node("g", "aggregator"),
        node("end", of="$g.aggregated"),
    ],
    "s > risky > g > end",
    "s > fine > g",
)

RETRY = flow(
    [
        node("flaky", "effect", of=1, fails=2, retry={"attempts": 3, "delay": 10, "backoff": "exponential"}),
        node("end", of="$flaky"),
    ],
    "flaky > end",
)

WINDOWED = flow(
    [
        node("s", "split", input_array="$trigger", max_concurrency=2, batch_size=1),
        node("each", "effect", of="$item"),
        node("g", "aggregator", collect="$item", reduce={"total": {"op": "sum", "value": "$item"}}),
        node("end", of="$g"),
    ],
    "s > each > g > end",
)

LEAVES = flow(
    [node("a"), node("b", of=1), node("c", "wait", amount=5), node("d", "dice"), node("e", of=2)],
    "a > b",
    "a > c > d",
    "e > d",
)

CASCADE = flow(
    [
        node("c", "conditional", expression="$trigger == 1"),
        node("x"),
        node("m1", "merge"),
        node("m2", "merge"),
        node("m3", "merge"),
        node("other", "effect", of=0),
        node("end", of="$m3.merged"),
    ],
    "c:true > x > m1",
    "c:true > m1 > m2",
    "x > m2 > m3 > end",
    "other > m3",
)

HALTED = flow(
    [node("a", "effect", of=1), node("bad", "boom"), node("slow", "wait", amount=1000), node("never")],
    "a > bad",
    "a > slow > never",
)

FAIL_FAST = flow(
    [
        node("s", "split", input_array="$trigger", on_item_error="fail_fast"),
        node("risky", "boom", when="{{ $item == 2 }}"),
        node("g", "aggregator", error={"type": "branch"}),
        node("saved", of="$error.code"),
        node("never"),
    ],
    "s > risky > g > never",
    "g:error > saved",
)

_CHILD = flow(
    [node("nap", "wait", amount=5), node("work", "effect", of="$trigger")],
    "nap > work",
)
_FAILING = flow([node("bad", "boom")])
CALLS = {
    **flow(
        [
            node("s", "split", input_array="$trigger"),
            node("one", "workflow", workflow="nested", input="$item"),
            node("g", "aggregator"),
            node("two", "workflow", workflow="failing", error={"type": "branch"}),
            node("end", of="$error.code"),
            node("never"),
        ],
        "s > one > g > two > never",
        "two:error > end",
    ),
    "workflows": {
        "nested": {
            **flow([node("call", "workflow", workflow="child", input="$trigger")]),
            "workflows": {"child": _CHILD},
        },
        "failing": _FAILING,
    },
}

LAZY = flow(
    [
        node("s", "stream", of=[[1, 2, 3], [], [4]], window=2, fails=1, fails_from=2),
        node("each", "effect", of="$item"),
        node("g", "aggregator", collect="$item"),
        node("end", of=["$s", "$g"]),
    ],
    "s > each > g > end",
)
LAZY["nodes"][0]["retry"] = {"attempts": 2, "delay": 10}

LAZY_AHEAD = flow(
    [
        node("s", "stream", of=[[1, 2], [3], [], [4]]),
        node("nap", "wait", amount=5),
        node("each", "effect", of="$item"),
        node("g", "aggregator", collect="$item"),
    ],
    "s > nap > each > g",
)

LAZY_INSIDE = flow(
    [
        node("s", "stream", of=[["a", "b"]], window=1),
        node("t", "stream", of="{{ [[$item], [1]] }}"),
        node("b", of="$items"),
        node("h", "aggregator"),
        node("g", "aggregator", collect="$h.aggregated"),
    ],
    "s > t > b > h > g",
)

UNREADABLE = flow(
    [
        node("s", "stream", of=[[1], [2]], window=1, fails=9, fails_from=1),
        node("each", "effect", of="$item"),
        node("g", "aggregator", error={"type": "branch"}),
        node("saved", of="$error.code"),
    ],
    "s > each > g",
    "g:error > saved",
)

FLOWS: dict[str, tuple[dict[str, Any], Any]] = {
    "linear": (LINEAR, None),
    "nested": (NESTED, [["a", "b"], [], ["c"]]),
    "item error": (ITEM_ERROR, [1, 2, 3]),
    "retry": (RETRY, None),
    "windowed": (WINDOWED, [1, 2, 3, 4, 5]),
    "leaves": (LEAVES, None),
    "cascade": (CASCADE, 2),
    "halted": (HALTED, None),
    "fail fast": (FAIL_FAST, [1, 2]),
    "lazy": (LAZY, None),
    "lazy ahead": (LAZY_AHEAD, None),
    "lazy inside": (LAZY_INSIDE, None),
    "unreadable": (UNREADABLE, None),
    "calls": (CALLS, [1]),
}


def steady(context: dict[str, Any]) -> dict[str, Any]:
    """The context without what tells the time or throws dice, or names a child after this execution."""
    return {
        key: json.loads(re.sub("child_[0-9a-f]{24}", "child", json.dumps(value)))
        for key, value in context.items()
        if not (isinstance(value, dict) and ("number" in value or "resume_at" in value))
    }


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("backend", INSIDE)
async def test_a_crash_at_any_call_changes_nothing(name: str, backend: str) -> None:
    definition, input = FLOWS[name]
    async with rig_inside(backend, settings=GENEROUS).running() as rig:
        assert isinstance(rig, Inside)
        status, context = await rig.result(definition, input)
        expected = (status, steady(context))
        calls = rig.faults.calls
        effects = dict(rig.world.runs)
    for call in range(1, calls + 1, share(backend)):
        for when in ("before", "after"):
            async with rig_inside(backend, settings=GENEROUS).running() as rig:
                assert isinstance(rig, Inside)
                getattr(rig.faults, when).add(call)
                status, context = await rig.result(definition, input)
                where = f"crashed {when} call {call}: {rig.faults.names[call - 1]}"
                assert rig.crashes == 1, where
                assert (status, steady(context)) == expected, where
                # An effect may repeat only if the process died while it ran, and then under the same key.
                for node_id, runs in rig.world.runs.items():
                    keys = set(rig.world.keys[node_id])
                    assert len(keys) <= effects[node_id], where
                    assert runs <= effects[node_id] + 1, where


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize(("backend", "seed"), sample(12, [*INSIDE]))
async def test_several_crashes_among_many_at_once(backend: str, name: str, seed: int) -> None:
    definition, input = FLOWS[name]
    async with rig_inside(backend, settings=GENEROUS).running() as rig:
        assert isinstance(rig, Inside)
        status, context = await rig.result(definition, input)
        expected = (status, steady(context))
        rig.seed(seed, at_once=4, duplicates=0.3)
        calls = [rig.faults.calls + rig.random.randrange(1, 60) for _ in range(4)]
        rig.faults.before, rig.faults.after = set(calls[:2]), set(calls[2:])
        status, context = await rig.result(definition, input)
        assert (status, steady(context)) == expected


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("seed", [seed for _, seed in sample(12, [FLEET])])
async def test_workers_that_are_killed_among_others_change_nothing(name: str, seed: int) -> None:
    """kill -9 of a real worker, with duplicates, while two others go on."""
    definition, input = FLOWS[name]
    async with rig_on(FLEET, settings=GENEROUS).running() as rig:
        assert isinstance(rig, Outside)
        status, context = await rig.result(definition, input)
        expected = (status, steady(context))
        rig.seed(seed, duplicates=0.3)
        rig.doom(rig.random.randrange(1, 8), rig.random.randrange(8, 20))
        status, context = await rig.result(definition, input)
        assert (status, steady(context)) == expected
        for node_id, keys in rig.world.keys.items():
            assert max(Counter(keys).values()) <= 3, f"{node_id} repeats only where its worker died"
