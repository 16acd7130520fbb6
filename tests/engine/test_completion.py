"""The end of an execution: one message with what its branches left, then its burial."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.messages import CompletionMessage
from rune.core.operations import Ending
from rune.core.references import reference
from rune.core.step import Snapshot
from rune.engine.completion import Completions
from rune.engine.values import INLINE, LARGE
from tests.core.graphs import NOW, graph, plain, raw, raws, step
from tests.engine.bench import EXECUTION, Bench

TASK = step(graph("a"), "a").task


def left(context: dict[str, Any], *refs: Ref) -> bytes:
    return msgspec.json.encode(Snapshot(raws(context), refs))


class Office:
    """Where executions are announced and buried."""

    def __init__(self) -> None:
        self.bench = Bench("a")
        self.completions = Completions(
            self.bench.state,
            self.bench.broker,
            self.bench.engine._calls,
            self.bench.engine.values,
            retention=100.0,
        )

    async def announce(self, *contexts: bytes, **rest: Any) -> CompletionMessage:
        ending = Ending(rest.pop("status", "completed"), NOW + 1.5, contexts, started_at=NOW, **rest)
        await self.completions.announce(TASK, ending)
        return self.bench.broker.completions_[-1]

    async def store(self, value: Any, key: str = "") -> Ref:
        data = bytes(raw(value))
        return Ref(await self.bench.engine.values.store(EXECUTION, data), len(data), key)

    def kept(self) -> Any:
        return self.bench.state.rows.at(EXECUTION)


@pytest.fixture
def office() -> Office:
    return Office()


async def test_a_completion_says_what_rfc_001_asks_for(office: Office) -> None:
    assert await office.announce(left({"$a": 1})) == CompletionMessage(
        workflow_id="wf",
        execution_id="exec",
        status="completed",
        final_context=raws({"$a": 1}),
        completed_at="2027-01-15T08:00:01.500Z",
        total_duration_ms=1500,
    )


async def test_a_failure_has_its_error_and_its_reason(office: Office) -> None:
    error = ErrorInfo("broken", "BROKEN", {"x": 1}, "a")
    completion = await office.announce(status="halted", error=msgspec.json.encode(error), reason="enough")
    assert (completion.status, completion.error, completion.reason) == ("halted", error, "enough")
    assert completion.final_context == {}


async def test_several_leaves_give_the_union_the_last_one_first(office: Office) -> None:
    completion = await office.announce(left({"$t": 1, "$a": 1}), left({"$t": 1, "$b": 2, "$a": 3}))
    assert plain(completion.final_context) == {"$t": 1, "$a": 3, "$b": 2}


async def test_small_stored_layers_travel_in_the_message(office: Office) -> None:
    layer = await office.store({"$t": 1, "$a": 1})
    completion = await office.announce(left({"$a": 2}, layer))
    assert (plain(completion.final_context), completion.refs) == ({"$t": 1, "$a": 2}, ())


async def test_large_values_stay_stored_and_are_named(office: Office) -> None:
    big = await office.store("x" * LARGE, "$big")
    completion = await office.announce(left({"$a": 1}, big))
    assert (plain(completion.final_context), completion.refs) == ({"$a": 1}, (big,))
    assert set(office.kept().values) == {big.hash}


async def test_a_value_that_was_written_over_is_not_named(office: Office) -> None:
    big = await office.store("x" * LARGE, "$a")
    completion = await office.announce(left({"$a": "small"}, big))
    assert (plain(completion.final_context), completion.refs) == ({"$a": "small"}, ())
    again = await office.announce(left({"$a": "small"}), left({}, await office.store("x" * LARGE, "$a")))
    assert (again.final_context, [ref.key for ref in again.refs]) == ({}, ["$a"])


async def test_a_context_that_is_large_in_all_is_stored_whole(office: Office) -> None:
    values = {f"${i}": "x" * (INLINE - 100) for i in range(4)}
    completion = await office.announce(left(values))
    assert (completion.final_context, len(completion.refs)) == ({}, 1)
    assert await office.bench.final(completion) == values
    assert set(office.kept().values) == {completion.refs[0].hash}


async def test_only_the_tombstone_and_what_the_completion_names_are_kept(office: Office) -> None:
    await office.store({"$t": 1})
    await office.announce(left({"$a": 1}))
    kept = office.kept()
    assert kept.row.buried
    assert (kept.values, kept.scopes, kept.steps, kept.timers) == ({}, {}, {}, {})


async def test_it_is_published_before_it_is_buried(office: Office) -> None:
    """A crash in between publishes the same again."""
    published: list[int] = []

    async def look(name: str) -> None:
        if name == "bury":
            published.append(len(office.bench.broker.completions_))

    office.bench.state.before = look
    await office.announce(left({"$a": 1}))
    assert published == [1]


async def test_without_a_start_there_is_no_duration(office: Office) -> None:
    await office.completions.announce(TASK, Ending("completed", NOW))
    assert office.bench.broker.completions_[-1].total_duration_ms == 0


async def test_what_the_result_refers_to_is_kept_and_what_that_refers_to(office: Office) -> None:
    inner = await office.store("inner")
    outer = await office.store([{"ref": reference(inner.hash)}])
    await office.store("nobody's")
    large = await office.store([reference(outer.hash), "x" * LARGE], "$large")
    small = await office.store("small")
    await office.announce(left({"$a": {"ref": reference(small.hash)}}, large))
    assert set(office.kept().values) == {inner.hash, outer.hash, large.hash, small.hash}
