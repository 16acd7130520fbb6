"""The split node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rune.core.errors import DefinitionError, NodeError
from rune.core.node import Portion
from rune.core.outcome import FanOut, Policy, Source
from rune.nodes._artifacts import Artifacts
from rune.nodes._threads import Threads
from rune.nodes.split import Split
from tests.nodes.fakes import FakeContext, made, run

USERS = [{"name": "Ada", "id": 7}, {"name": "Bob", "id": 8}]


async def fan_out(context: FakeContext | None = None, /, **parameters: Any) -> FanOut:
    outcome = await run(Split, context, **parameters)
    assert isinstance(outcome, FanOut)
    return outcome


async def test_items_of_a_list() -> None:
    context = FakeContext({"$fetch": {"body": {"users": USERS}}})
    assert await fan_out(context, input_array="{{ $fetch.body.users }}") == FanOut(Source(items=USERS))
    assert await fan_out(input_array=[]) == FanOut(Source(items=[]))


async def test_labels_and_keys_are_expressions_of_the_item() -> None:
    outcome = await fan_out(
        FakeContext({"$u": USERS}), input_array="$u", label="$item.name ~ '!'", key="$item.id + $index"
    )
    assert outcome.labels == ["Ada!", "Bob!"]
    assert outcome.keys == ["7", "9"]


async def test_long_labels_are_cut_and_long_keys_stay_apart() -> None:
    texts = ["x" * 1000 + end for end in "ab"]
    outcome = await fan_out(FakeContext({"$t": texts}), input_array="$t", label="$item", key="$item")
    assert outcome.labels == ["x" * 199 + "…"] * 2
    assert outcome.keys is not None
    assert [len(key) for key in outcome.keys] == [200, 200]
    assert outcome.keys[0] != outcome.keys[1]


@pytest.mark.parametrize(
    ("given", "source", "length"),
    [
        (5, Source(stop=5), 5),
        ([5], Source(stop=5), 5),
        ([2, 5], Source(start=2, stop=5), 3),
        ([10, 0, -3], Source(start=10, stop=0, stride=-3), 4),
        ("{{ $n }}", Source(stop=3), 3),
    ],
)
async def test_range(given: Any, source: Source, length: int) -> None:
    outcome = await fan_out(FakeContext({"$n": 3}), source={"range": given})
    assert outcome == FanOut(source)
    assert len(outcome.source) == length


async def test_a_range_with_labels_is_stored_with_them() -> None:
    outcome = await fan_out(source={"range": [2, 4]}, label="'no ' ~ $item")
    assert outcome == FanOut(Source(items=[2, 3]), labels=["no 2", "no 3"])


@pytest.mark.parametrize(
    ("given", "fixed"),
    [
        ({"jsonl": "{{ $n }}.jsonl"}, {"jsonl": "3.jsonl"}),
        ({"csv": {"file": "a", "header": "$b"}}, {"csv": {"file": "a", "header": False}}),
        ("$whole", {"lines": "a"}),
    ],
)
async def test_what_is_read_is_fixed_when_it_opens(given: Any, fixed: dict[str, Any]) -> None:
    context = FakeContext({"$n": 3, "$b": False, "$whole": {"lines": "a"}})
    outcome = await fan_out(context, source=given, label="$item", max_concurrency=5)
    assert outcome == FanOut(Source(lazy=fixed), window=5)


async def test_labels_and_keys_of_what_is_read_are_read_with_it(tmp_path: Path) -> None:
    (tmp_path / "users").write_text('{"name": "Ada", "id": 7}\n{"name": "Bob", "id": 8}\n')
    threads = Threads()
    context = FakeContext(services={"artifacts": Artifacts(tmp_path), "threads": threads})
    parameters = {"source": {"jsonl": "users"}, "label": "$item.name", "key": "$item.id ~ '/' ~ $index"}
    split = made(Split, context, parameters)
    portion = await split.read(context, {"jsonl": "users"}, None, 40, 10)
    await threads.close()
    assert portion == Portion(USERS, labels=["Ada", "Bob"], keys=["7/40", "8/41"])


def test_only_what_is_read_is_tried_again() -> None:
    assert made(Split, FakeContext(), {"source": {"range": 3}}).retry_policy() is None
    assert made(Split, FakeContext(), {"source": {"lines": "a"}}).retry_policy() is not None


@pytest.mark.parametrize(
    ("parameters", "policy"),
    [
        ({}, Policy()),
        ({"on_item_error": "collect"}, Policy()),
        ({"on_item_error": "fail_fast"}, Policy(tolerated=0)),
        ({"on_item_error": "allow_partial"}, Policy(need_success=True)),
        ({"tolerated_failures": 3}, Policy(tolerated=3)),
        ({"tolerated_failures": "3"}, Policy(tolerated=3)),
        ({"tolerated_failures": "10%"}, Policy(tolerated=2)),
        (
            {"tolerated_failures": "10%", "on_item_error": "allow_partial"},
            Policy(tolerated=2, need_success=True),
        ),
    ],
)
async def test_policies(parameters: dict[str, Any], policy: Policy) -> None:
    assert (await fan_out(input_array=list(range(25)), **parameters)).policy == policy


async def test_batches_and_windows() -> None:
    outcome = await fan_out(input_array=[1], batch_size="7", max_concurrency=3)
    assert (outcome.batch, outcome.window) == (7, 3)
    outcome = await fan_out(input_array=[1])
    assert (outcome.batch, outcome.window) == (0, 0)


@pytest.mark.parametrize(
    ("value", "kind"), [({"a": 1}, "object"), ("text", "string"), (None, "null"), (3, "number")]
)
async def test_what_is_no_list(value: Any, kind: str) -> None:
    with pytest.raises(NodeError, match=kind) as caught:
        await run(Split, FakeContext({"$v": value}), input_array="$v")
    assert caught.value.code == "SPLIT_NOT_ARRAY"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"input_array": [1], "source": {"range": 3}}, "not both"),
        ({"source": {"range": [0, 1, 0]}}, "zero"),
        ({"source": {"range": []}}, "range"),
        ({"source": {"jsonl": "a", "csv": "b"}}, "exactly one of"),
        ({"source": {}}, "exactly one of"),
        ({"source": {"csv": {"file": "a", "delimiter": '"'}}}, "delimiter"),
        ({"source": {"csv": {"header": False}}}, "'file' is missing"),
        ({"source": {"pages": {"url": "http://x"}}}, "give one of them"),
        ({"source": {"pages": {"url": "http://x", "page": "p", "cursor": "c"}}}, "`cursor` is for"),
        ({"source": {"sql": {"query": "SELECT 1"}}}, "'key' is missing"),
        ({"source": {"xml": "a", "jsonl": "b"}}, "unknown field"),
        ({"source": {"jsonl": "a"}, "tolerated_failures": "10%"}, "give a count"),
        ({"input_array": [1], "batch_size": 0}, "batch_size"),
        ({"input_array": [1], "batch_size": "many"}, "batch_size"),
        ({"input_array": [1], "max_concurrency": 0}, "max_concurrency"),
        ({"input_array": [1], "tolerated_failures": "half"}, "tolerated_failures"),
        ({"input_array": [1], "tolerated_failures": -1}, "tolerated_failures"),
        ({"input_array": [1], "tolerated_failures": "101%"}, "tolerated_failures"),
        ({"input_array": [1], "tolerated_failures": 1, "on_item_error": "fail_fast"}, "fail_fast"),
        ({"input_array": [1], "on_item_error": "colect"}, "did you mean|on_item_error"),
        ({"input_array": [1], "label": "$item."}, "."),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        made(Split, FakeContext(), parameters)


async def test_neither_list_nor_source() -> None:
    with pytest.raises((NodeError, DefinitionError), match="input_array"):
        await run(Split)
