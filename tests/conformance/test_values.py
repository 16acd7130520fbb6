"""Data: large values go by reference, messages stay small, and nothing in a value is ever evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.messages import encode
from rune.settings import Settings
from tests.conformance.harness import Rig, flow, node

LIMIT = 64 * 1024
LARGE = "x" * 1_000_000


async def test_a_megabyte_through_ten_nodes_travels_as_a_reference(rig: Rig) -> None:
    nodes = [
        node("big", of="$trigger"),
        *(node(f"n{i}", of=i) for i in range(8)),
        node("end", of="{{ $big | length }}"),
    ]
    stored = rig.count_stored()
    status, context = await rig.result(flow(nodes, " > ".join(n["id"] for n in nodes)), LARGE)
    assert (status, context["$end"]) == ("completed", len(LARGE))
    assert context["$big"] == LARGE
    assert rig.largest() < LIMIT
    assert stored() < 3 * len(LARGE), "stored once by what it is, not once a step"
    assert all(len(encode(completion)) < LIMIT for completion in rig.completions)


async def test_many_small_values_do_not_add_up_to_a_large_message(rig: Rig) -> None:
    nodes = [node(f"n{i}", of="y" * 10_000) for i in range(30)]
    status, context = await rig.result(flow(nodes, " > ".join(n["id"] for n in nodes)))
    assert status == "completed"
    assert all(context[f"$n{i}"] == "y" * 10_000 for i in range(30))
    assert rig.largest() < LIMIT


async def test_a_fan_out_over_a_large_context_writes_it_once(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="{{ range(500) }}"),
            node("b", of="{{ ($trigger | length) + $item }}"),
            node("g", "aggregator"),
        ],
        "s > b > g",
    )
    stored = rig.count_stored()
    _, context = await rig.result(definition, LARGE)
    assert context["$g"]["aggregated"] == [len(LARGE) + i for i in range(500)]
    published = rig.bytes_published()
    assert stored() < 2 * len(LARGE) + 100_000
    assert published < 500 * 1500
    assert rig.largest() < LIMIT


@pytest.mark.parametrize("batch", [1, "auto"])
async def test_what_is_published_grows_with_the_items(rigged: Any, batch: Any) -> None:
    """FACTS: 800 items of 105 bytes made messages of 135 MB."""
    weights = {}
    for count in (750, 3000):
        async with rigged(shuffle=False) as rig:
            definition = flow(
                [
                    node("s", "split", input_array="$trigger", batch_size=batch),
                    node("b", of="$index"),
                    node("g", "aggregator"),
                ],
                "s > b > g",
            )
            items = [f"{i:05}" + "z" * 95 for i in range(count)]
            _, context = await rig.result(definition, items)
            assert context["$g"]["aggregated"] == list(range(count))
            weights[count] = rig.bytes_published()
            assert rig.largest() < LIMIT
    assert weights[3000] < 5 * weights[750]


async def test_large_items(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("b", of="{{ $item | length }}"),
            node("g", "aggregator"),
        ],
        "s > b > g",
    )
    _, context = await rig.result(definition, ["a" * 200_000, "b" * 70_000, "c"])
    assert context["$g"]["aggregated"] == [200_000, 70_000, 1]
    assert rig.largest() < LIMIT


async def test_large_results_of_items(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("b", of="$trigger"),
            node("g", "aggregator", collect="$big"),
            node("end", of="{{ $g.aggregated | length }}"),
        ],
        "s > b > g > end",
    )
    _, context = await rig.result(definition, [1, 2], **{"$big": "q" * 100_000})
    assert [len(r) for r in context["$g"]["aggregated"]] == [100_000, 100_000]
    assert rig.largest() < LIMIT


async def test_large_values_through_merges(rig: Rig) -> None:
    nodes = [
        node("a", of="$trigger"),
        node("l", of="{{ $a ~ 'l' }}"),
        node("r", of="{{ $a ~ 'r' }}"),
        node("m", "merge"),
        node("end", of="{{ [$l | last, $r | last, $m.merged[0] | length] }}"),
    ]
    status, context = await rig.result(flow(nodes, "a > l > m > end", "a > r > m"), "v" * 100_000)
    assert (status, context["$end"]) == ("completed", ["l", "r", 100_001])
    assert context["$l"] == "v" * 100_000 + "l"
    assert rig.largest() < LIMIT


async def test_a_large_value_in_a_wait_and_an_error(rig: Rig) -> None:
    nodes = [
        node("w", "wait"),
        node("bad", "boom", message="{{ $trigger }}", error={"type": "branch"}),
        node("end", of="{{ $trigger | length }}"),
    ]
    status, context = await rig.result(flow(nodes, "w > bad", "bad:error > end"), LARGE)
    assert (status, context["$end"]) == ("completed", len(LARGE))
    assert rig.largest() < LIMIT


async def test_a_large_definition_goes_by_its_hash(rig: Rig) -> None:
    nodes = [node(f"n{i}", of="constant " * 300) for i in range(50)]
    await rig.result(flow(nodes, " > ".join(n["id"] for n in nodes)))
    assert rig.largest() < LIMIT


async def test_a_value_beyond_the_limit_is_the_nodes_error(rigged: Any) -> None:
    async with rigged(settings=Settings(max_value=50_000)) as rig:
        status, _ = await rig.result(flow([node("a", of="$trigger.x")]), {"x": "y" * 49_000})
        assert status == "completed"
        execution = await rig.start(
            flow([node("a", of="{{ $trigger.x ~ $trigger.x }}")]), {"x": "y" * 49_000}
        )
        await rig.run()
        completion = await rig.finished(execution)
        assert (completion.status, completion.error.code) == ("failed", "VALUE_TOO_LARGE")


HOSTILE = [
    '"',
    "'",
    "\\",
    "{{ 1 + 1 }}",
    "$trigger",
    "{{ $trigger }} and $item",
    "\x00\x01\x1f",
    "\ud7ff\U0001f600 \u2028\u2029",
    {"__proto__": 1, "constructor": {"prototype": 2}, "": 3, "a.b": 4, "$json": 5, "error": 6},
    {"$values": [1], "$collected": 2},
    [[]],
    [None, True, False, 0, -0.0, 1e308, 5e-324, 2**63, -(2**70), 0.1],
]


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [*HOSTILE, deep(100)], ids=[*map(str, range(len(HOSTILE))), "deep"])
async def test_data_stays_data(rig: Rig, value: Any) -> None:
    """FACTS: a value that is one quote character crashed every worker in turn."""
    definition = flow(
        [
            node("a", of="$trigger.v"),
            node("s", "split", input_array=["$trigger.v", "{{ $a }}"]),
            node("b", of="$item"),
            node("c", of="$item"),
            node("m", "merge"),
            node("g", "aggregator", reduce={"all": {"op": "append", "value": "$b"}}),
            node("h", of="$g.reduced.all"),
            node("w", "wait"),
            node("x", of="$h"),
        ],
        "a > s > b > m > g > h > w > x",
        "s > c > m",
    )
    status, context = await rig.result(definition, {"v": value})
    assert status == "completed"
    assert context["$trigger"] == {"v": value}
    assert context["$a"] == value
    assert context["$x"] == [value, value]


@pytest.mark.parametrize("value", HOSTILE, ids=map(str, range(len(HOSTILE))))
async def test_hostile_results_of_items(rig: Rig, value: Any) -> None:
    definition = flow(
        [node("s", "split", input_array="$trigger"), node("b", of="$item"), node("g", "aggregator")],
        "s > b > g",
    )
    _, context = await rig.result(definition, [value, value])
    assert context["$g"]["aggregated"] == [value, value]
