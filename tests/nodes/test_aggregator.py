"""The aggregator node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.errors import DefinitionError, NodeError
from rune.core.node import Gathered
from rune.core.outcome import Arrive
from rune.nodes.aggregator import Aggregator
from tests.nodes.fakes import FakeContext, made, output, run


async def arrive(previous: Any, **parameters: Any) -> Arrive:
    context = FakeContext({"$previous": previous, "$item": {"n": 4, "tags": {"a": 1}}, "$calc": {"x": 2.5}})
    outcome = await run(Aggregator, context, **parameters)
    assert isinstance(outcome, Arrive)
    return outcome


async def gather(slots: list[Any], folds: Any = (), **parameters: Any) -> dict[str, Any]:
    succeeded = sum(slot is not None for slot in slots)
    gathered = Gathered(
        msgspec.Raw(msgspec.json.encode(slots)), len(slots), succeeded, 0, len(slots) - succeeded, folds
    )
    result: dict[str, Any] = await output(Aggregator, FakeContext(gathered=gathered), **parameters)
    return result


def keeps(**parameters: Any) -> bool:
    return made(Aggregator, FakeContext(), parameters).keeps_results()


async def test_item_brings_what_the_node_before_gave() -> None:
    arrived = await arrive({"status": 200})
    assert bytes(arrived.result) == b'{"status":200}'


async def test_item_brings_what_collect_says() -> None:
    assert await arrive({}, collect="$item.n * 2") == Arrive(8)
    assert await arrive({}, collect="{{ $calc.x }}") == Arrive(2.5)


async def test_results_pass_through_undecoded() -> None:
    assert await gather([{"a": 1}, None, {"error": {"message": "x"}}]) == {
        "aggregated": [{"a": 1}, None, {"error": {"message": "x"}}],
        "count": 3,
        "succeeded": 2,
        "failed": 0,
        "skipped": 1,
    }


async def test_numbers_fold_at_the_barrier() -> None:
    reduce = {
        "total": {"op": "sum", "value": "$item.n"},
        "large": {"op": "count", "value": "$item.n > 100"},
        "least": {"op": "min", "value": "$calc.x"},
        "most": {"op": "max", "value": "$calc.x"},
        "mean": {"op": "mean", "value": "$item.n"},
        "all": {"op": "count"},
    }
    assert await arrive({}, reduce=reduce) == Arrive(None, (4, 0, 2.5, 2.5, 4, 1))
    assert not keeps(reduce=reduce)
    folds = ((10, 4, 1, 4), (2, 4, 0, 1), (9, 4, 1.5, 4), (9, 4, 1.5, 4), (10, 4, 1, 4), (4, 4, 1, 1))
    result = await gather([], folds, reduce=reduce)
    assert result["reduced"] == {"total": 10, "large": 2, "least": 1.5, "most": 4, "mean": 2.5, "all": 4}
    assert "aggregated" not in result


async def test_nothing_to_fold() -> None:
    reduce = {"total": {"op": "sum"}, "n": {"op": "count"}, "least": {"op": "min"}, "mean": {"op": "mean"}}
    result = await gather([], reduce=reduce)
    assert result["reduced"] == {"total": 0, "n": 0, "least": None, "mean": None}


async def test_one_operation_on_the_results() -> None:
    assert await arrive(7, reduce="sum") == Arrive(None, (7,))
    assert await arrive({}, reduce="sum", collect="$item.n") == Arrive(4, (4,))
    result = await gather([4, 5], ((9, 2, 4, 5),), reduce="sum", collect="$item.n")
    assert (result["reduced"], result["aggregated"]) == (9, [4, 5])


async def test_append_and_merge_keep_the_order_of_items() -> None:
    reduce = {
        "tags": {"op": "merge", "value": "$item.tags"},
        "ns": {"op": "append", "value": "$item.n"},
        "sum": {"op": "sum", "value": "$item.n"},
    }
    first = await arrive({}, reduce=reduce)
    assert first.folds == (4,)
    assert keeps(reduce=reduce)
    slots = [
        first.result,
        None,
        {"error": {"message": "failed", "code": "X"}},
        {
            "a": {"$collected": None, "$values": [{"a": 2}, 5]},
            "b": [{"$collected": None, "$values": [{"b": 3}, 6]}],
        },
    ]
    result = await gather(slots, ((15, 3, 4, 6),), reduce=reduce)
    assert result["reduced"] == {"tags": {"a": 2, "b": 3}, "ns": [4, 5, 6], "sum": 15}
    assert "aggregated" not in result


async def test_append_beside_collect() -> None:
    first = await arrive({"r": 1}, reduce="append", collect="$item.n")
    result = await gather(
        [first.result, None, {"error": {"message": "x"}}], reduce="append", collect="$item.n"
    )
    assert result["aggregated"] == [4, None, {"error": {"message": "x"}}]
    assert result["reduced"] == [4]


async def test_append_of_no_items() -> None:
    assert (await gather([], reduce="append"))["reduced"] == []
    assert (await gather([None], reduce="merge"))["reduced"] == {}


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({}, True),
        ({"reduce": "sum"}, False),
        ({"reduce": "sum", "collect": "$item"}, True),
        ({"reduce": "append"}, True),
        ({"reduce": {"a": {"op": "max"}, "b": {"op": "count"}}}, False),
    ],
)
def test_results_are_kept_only_where_needed(parameters: dict[str, Any], kept: bool) -> None:
    assert keeps(**parameters) is kept


@pytest.mark.parametrize("value", ["7", None, True, [1]])
async def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(NodeError, match="numbers") as caught:
        await arrive(value, reduce="sum")
    assert caught.value.code == "REDUCE_TYPE"


async def test_what_cannot_merge() -> None:
    with pytest.raises(NodeError, match="objects"):
        await arrive([1], reduce="merge")


@pytest.mark.parametrize(
    "parameters",
    [{"reduce": "total"}, {"reduce": {"a": {"value": "$item"}}}, {"timeout": 0}, {"collect": "$item +"}],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        made(Aggregator, FakeContext(), parameters)
