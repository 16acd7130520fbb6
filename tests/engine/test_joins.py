"""What a join holds once it has opened."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rune.backends.memory import MemoryState
from rune.core.context import Ref
from rune.core.errors import MessageError
from rune.core.node import Gathered
from rune.core.operations import ArriveAt, Commit, Expire, Open, Operation, Place, Rule, Settle, Skip, Timer
from rune.core.outcome import Done, Failed, Policy
from rune.core.step import Snapshot, Step
from rune.core.workflow import Workflow
from rune.engine.joins import Joins
from rune.engine.values import Values
from tests.core.graphs import Gather, Meet, Scatter, Start, branch, graph, node, plain, raw, raws, step

E = "exec"
FAN = graph("s > b > g", nodes=(node("s", Scatter), node("g", Gather)))
SUMS = graph("s > b > g", nodes=(node("s", Scatter), node("g", Gather, keep=False)))
BARE = graph("s > b", nodes=(node("s", Scatter),))
MEETING = graph("t > a > m", "b > m", "c > m", nodes=(node("t", Start), node("m", Meet)))
ALARM = Timer("alarm", 1.0, b"", sleeping=False)


class Bench:
    def __init__(self) -> None:
        self.state = MemoryState(lambda: 50.0)
        self.values = Values(self.state)
        self.joins = Joins(self.state, self.values)

    async def do(self, step: str, *operations: Operation, place: Place = ()) -> None:
        await self.state.apply(E, [Commit(step, place, operations)])

    async def fan_out(self, results: list[Any], **rest: Any) -> None:
        """A fan-out that ended so: an exception is a failed item, None a skipped one."""
        await self.do("s", Open("b", len(results), 1, b"", **rest))
        for i, result in enumerate(results):
            if isinstance(result, Exception):
                settle = Settle(-1, error=bytes(raw({"message": str(result)})))
            else:
                settle = Settle(-1, None if result is None else bytes(raw(result)), folds=(i,))
            await self.do(f"item{i}", settle, place=(("b", i),))

    async def arrive(self, order: int, of: Snapshot, need: int | None = None, expected: int = 3) -> None:
        rule = Rule("merge", "m", expected, need, ALARM)
        await self.do("fork", Settle(2))
        await self.do(f"step{order}", ArriveAt(rule, order, msgspec.json.encode(of)))

    async def gather(self, flow: Workflow = FAN, at: str = "g") -> Any:
        opened = await self.joins.opened(gathering(flow, at))
        return None if opened is None else opened[1]

    async def meet(self) -> tuple[Step, Any]:
        opened = await self.joins.opened(step(MEETING, "m", branch("merge")))
        assert opened is not None
        return opened


def gathering(flow: Workflow, at: str, details: Any = "b") -> Step:
    made = step(flow, at)
    return msgspec.structs.replace(made, task=msgspec.structs.replace(made.task, details=raw(details)))


def left(
    context: dict[str, Any], from_node: str | None, path: str = "", refs: tuple[Ref, ...] = ()
) -> Snapshot:
    return Snapshot(raws(context), refs, path, from_node)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- fan-outs ---


async def test_results_are_in_the_order_of_the_items(bench: Bench) -> None:
    await bench.fan_out([{"x": 1}, ValueError("no"), None, [4]])
    gathered = await bench.gather()
    assert isinstance(gathered, Gathered)
    assert plain(gathered.results) == [{"x": 1}, {"error": {"message": "no"}}, None, [4]]
    assert (gathered.total, gathered.succeeded, gathered.failed, gathered.skipped) == (4, 2, 1, 1)


async def test_folded_numbers_need_no_results(bench: Bench) -> None:
    await bench.fan_out(["x", "y"], keep_results=False)
    gathered = await bench.gather(SUMS)
    assert (plain(gathered.results), gathered.folds) == ([], ((1, 2, 0, 1),))


async def test_an_empty_fan_out_gathers_nothing(bench: Bench) -> None:
    await bench.fan_out([])
    assert plain((await bench.gather()).results) == []


async def test_without_an_aggregator_the_branch_ends_with_its_last_item(bench: Bench) -> None:
    await bench.fan_out([1, 2])
    ended = await bench.gather(BARE, "s")
    assert isinstance(ended, Done)
    assert (plain(ended.output), ended.port) == ({"count": 2}, None)


async def test_items_that_fail_the_whole_are_counted_and_the_first_is_told(bench: Bench) -> None:
    await bench.fan_out([1, ValueError("no"), ValueError("neither")], policy=Policy(tolerated=1))
    failed = await bench.gather()
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.node, failed.engine) == ("ITEMS_FAILED", "g", False)
    assert failed.error.details == {"failed": 2, "total": 3, "first_error": {"message": "no"}}
    assert failed.error.message.startswith("2 of 3 items failed")


async def test_a_fan_out_whose_time_is_up_is_the_engines_failure(bench: Bench) -> None:
    await bench.do("s", Open("b", 2, 1, b""))
    assert await bench.gather() is None
    await bench.do("expire", Expire("b", ALARM))
    failed = await bench.gather()
    assert (failed.error.code, failed.engine) == ("AGGREGATOR_TIMEOUT", True)
    assert failed.error.details == {"failed": 0, "total": 2}


async def test_a_barrier_that_is_gone_is_nothing(bench: Bench) -> None:
    assert await bench.gather() is None


async def test_a_task_that_gathers_without_a_barrier_is_a_message_error(bench: Bench) -> None:
    with pytest.raises(MessageError, match="barrier"):
        await bench.joins.opened(gathering(FAN, "g", None))


# --- merges ---


async def test_payloads_are_in_edge_order_and_contexts_united(bench: Bench) -> None:
    await bench.arrive(2, left({"$t0": 1, "$c": "C"}, "c", ".2"))
    a = left({"$t0": 1, "$a": {"$json": "A", "count": 1}, "$json": "A"}, "a", ".0")
    await bench.arrive(0, msgspec.structs.replace(a, writers=("a", "")))
    b = left({"$t0": 1, "$b": {"$json": "B"}, "$json": "B"}, "b", ".1")
    await bench.arrive(1, msgspec.structs.replace(b, writers=("b", "")))
    made, gathered = await bench.meet()
    assert plain(gathered.results) == ["A", "B", "C"]
    assert (gathered.total, gathered.winner) == (3, None)
    assert plain(made.branch.context.inline()) == {
        "$t0": 1,
        "$a": {"$json": "A", "count": 1},
        "$b": {"$json": "B"},
        "$c": "C",
        "$json": "B",
    }
    assert made.branch.path == ".0"


async def test_branches_along_one_edge_are_in_path_order(bench: Bench) -> None:
    await bench.do("fork", Settle(2))
    for order, path in enumerate([".10", ".9", ".9.1"]):
        rule = Rule("merge", "m", 3)
        payload = msgspec.json.encode(left({"$a": path}, "a", path))
        await bench.do(f"step{order}", ArriveAt(rule, 0, payload))
    made, gathered = await bench.meet()
    assert plain(gathered.results) == [".9", ".9.1", ".10"]
    assert (made.branch.path, plain(made.branch.context.inline())) == (".9", {"$a": ".10"})


async def test_a_branch_straight_from_the_trigger_brings_the_payload(bench: Bench) -> None:
    await bench.arrive(0, left({"$trigger": "payload"}, "t"), expected=2)
    await bench.arrive(1, left({"$trigger": "payload"}, "b"), expected=2)
    _, gathered = await bench.meet()
    assert plain(gathered.results) == ["payload", None]


async def test_only_live_arrivals_count(bench: Bench) -> None:
    await bench.arrive(0, left({"$a": 1}, "a"), expected=2)
    await bench.do("other", Skip(Rule("merge", "m", 2), "other!e", 1))
    _, gathered = await bench.meet()
    assert (plain(gathered.results), gathered.total) == ([1], 1)


async def test_the_first_to_arrive_at_a_race_is_its_winner(bench: Bench) -> None:
    await bench.arrive(1, left({"$b": 1}, "b"), need=1)
    await bench.arrive(0, left({"$a": 1}, "a"), need=1)
    made, gathered = await bench.meet()
    assert (gathered.winner, plain(gathered.results)) == ("b", [1])
    assert plain(made.branch.context.inline()) == {"$b": 1}


async def test_stored_values_that_all_share_stay_stored(bench: Bench) -> None:
    common = Ref(await bench.values.store(E, bytes(raw({"$t0": 0}))), 9)
    own = Ref(await bench.values.store(E, bytes(raw({"$a": 1}))), 9)
    await bench.arrive(0, left({}, "a", refs=(common, own)), expected=2)
    await bench.arrive(1, left({"$b": 2}, "b", refs=(common,)), expected=2)
    made, gathered = await bench.meet()
    assert plain(gathered.results) == [1, 2]
    assert made.branch.context.refs == (common,)
    assert plain(made.branch.context.inline()) == {"$a": 1, "$b": 2}


async def test_a_newer_stored_value_is_not_hidden_by_an_older_inline_one(bench: Bench) -> None:
    """Both arrivals know `$a`; the one that wrote it anew comes later along the edges."""
    anew = Ref(await bench.values.store(E, b'"new"'), 5, "$a")
    await bench.arrive(0, left({"$a": "old"}, "a"), expected=2)
    await bench.arrive(1, left({"$b": 2}, "b", refs=(anew,)), expected=2)
    made, _ = await bench.meet()
    assert plain(made.branch.context.inline()) == {"$a": "new", "$b": 2}


@pytest.mark.parametrize(
    ("why", "code", "engine"), [("timeout", "MERGE_TIMEOUT", True), ("impossible", "MERGE_IMPOSSIBLE", False)]
)
async def test_a_merge_that_fails_says_why(bench: Bench, why: str, code: str, engine: bool) -> None:
    await bench.arrive(0, left({"$a": 1}, "a", ".0"), need=3)
    if why == "timeout":
        await bench.do("expire", Expire("merge", ALARM))
    else:
        await bench.do("other", Skip(Rule("merge", "m", 3, 3), "other!e", 1))
    made, failed = await bench.meet()
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.engine, failed.error.node) == (code, engine, "m")
    assert failed.error.details == {"arrived": 1, "expected": 3}
    assert (plain(made.branch.context.inline()), made.branch.path) == ({"$a": 1}, ".0")


async def test_a_merge_that_still_waits_is_nothing(bench: Bench) -> None:
    await bench.arrive(0, left({"$a": 1}, "a"))
    assert await bench.joins.opened(step(MEETING, "m", branch("merge"))) is None


class Reader(Gather):
    """An aggregator that reads what was gathered by itself."""

    streams = True


async def test_a_node_that_streams_gets_the_results_page_by_page() -> None:
    flow = graph("s > b > g", nodes=(node("s", Scatter), node("g", Reader)))
    bench = Bench()
    await bench.fan_out([n if n != 2 else None for n in range(3000)])
    found = await bench.gather(flow)
    assert (found.total, found.succeeded, found.skipped, found.results) == (3000, 2999, 1, raw([]))
    pages = [page async for page in found.pages()]
    assert len(pages) > 1
    assert [(index, int(data)) for page in pages for index, data in page] == [
        (n, n) for n in range(3000) if n != 2
    ]


async def test_pages_of_large_results_are_small() -> None:
    flow = graph("s > b > g", nodes=(node("s", Scatter), node("g", Reader)))
    bench = Bench()
    await bench.fan_out(["x" * 20_000] * 1600)
    found = await bench.gather(flow)
    sizes = [len(page) async for page in found.pages()]
    assert sum(sizes) == 1600
    assert max(sizes[1:]) < 300, "about four megabytes"
