"""Fan-outs whose items are read portion by portion, while they run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rune.core.messages import scope_of
from rune.core.operations import Seed
from rune.core.outcome import Done
from tests.conformance.harness import GENEROUS, Rig, compiled, flow, node

PORTIONS = [[0, 1, 2, 3, 4], [5, 6], [], [7, 8, 9, 10, 11, 12, 13], [14]]
ITEMS = [item for portion in PORTIONS for item in portion]


def stream(*body: dict[str, Any], gather: dict[str, Any] | None = None, **split: Any) -> dict[str, Any]:
    """stream `s` > body, one after the other > aggregator `g` > `end`."""
    nodes = [
        node("s", "stream", **{"of": PORTIONS, **split}),
        *(body or (node("b", of="{{ $item * 10 + $index }}"),)),
        gather or node("g", "aggregator"),
        node("end", of="$s"),
    ]
    return flow(nodes, " > ".join(n["id"] for n in nodes))


def readings(rig: Rig, split: str = "s") -> list[tuple[int, int]]:
    """The portions that were read, each with the index of its first item."""
    return sorted(tuple(saw) for saw in rig.world.saw[split])


@pytest.mark.parametrize("window", [1, 3, 6, 0])
async def test_order_in_is_order_out_whatever_the_window(rigged: Any, window: int) -> None:
    """Smaller than a portion, larger than one, larger than all."""
    async with rigged(seed=window, duplicates=0.5, at_once=4) as rig:
        status, context = await rig.result(stream(window=window))
        assert status == "completed"
        assert context["$g"] == {
            "aggregated": [item * 11 for item in ITEMS],
            "count": 15,
            "succeeded": 15,
            "failed": 0,
            "skipped": 0,
        }
        assert context["$end"] == {"count": 15}, "after the join, the count is known"
        assert readings(rig) == [(0, 0), (1, 5), (2, 7), (3, 7), (4, 14)], "each portion once"


@pytest.mark.parametrize("portions", [[], [[]], [[], [], []]])
async def test_a_source_without_items_opens_the_aggregator(rigged: Any, portions: list[Any]) -> None:
    async with rigged(duplicates=0.5) as rig:
        status, context = await rig.result(stream(of=portions))
        assert status == "completed"
        assert context["$g"] == {"aggregated": [], "count": 0, "succeeded": 0, "failed": 0, "skipped": 0}
        assert context["$end"] == {"count": 0}


async def test_an_empty_portion_may_be_the_last(rig: Rig) -> None:
    _, context = await rig.result(stream(of=[[1, 2], []]))
    assert context["$g"]["count"] == 2


async def test_items_do_not_see_how_many_they_are(rig: Rig) -> None:
    _, context = await rig.result(stream(node("b", of=["$s", "$index", "$item"])))
    assert context["$g"]["aggregated"] == [[{"count": None}, i, item] for i, item in enumerate(ITEMS)]


async def test_the_total_is_told_when_it_is_known(calm: Rig) -> None:
    execution = await calm.start(stream(window=3))
    await calm.run()
    await calm.finished(execution)
    (opened,) = [s for s in calm.statuses if s.node_id == "s" and s.status == "success"]
    assert opened.output is not None
    assert msgspec.json.decode(opened.output) == {"count": None}
    told = [s.details["total"] for s in calm.statuses if s.node_id == "g" and s.status == "waiting"]
    assert told[0] is None
    assert told[-1] == 15
    frames = {s.lineage_stack[-1].item_index: s.lineage_stack[-1] for s in calm.statuses if s.node_id == "b"}
    assert [frames[i].total_items for i in (0, 7, 14)] == [None, None, 15]
    assert [frames[i].label for i in (0, 7, 14)] == ["0/0", "3/0", "4/0"]


async def test_without_an_aggregator_the_branch_ends_with_its_last_item(rigged: Any) -> None:
    definition = flow([node("s", "stream", of=PORTIONS, window=4), node("b", "effect", of="$item")], "s > b")
    async with rigged(duplicates=0.3) as rig:
        status, context = await rig.result(definition)
        assert (status, context["$s"]) == ("completed", {"count": 15})
        assert sorted(rig.world.saw["b"]) == ITEMS


async def test_without_a_body_nothing_is_read(rig: Rig) -> None:
    status, context = await rig.result(flow([node("s", "stream", of=PORTIONS)]))
    assert (status, context["$s"]) == ("completed", {"count": None})
    assert not readings(rig)


@pytest.mark.parametrize("window", [1, 4])
async def test_never_more_items_in_flight_than_the_window(rigged: Any, window: int) -> None:
    body = node("b", "effect", of="$item", steps=5), node("w", "wait", amount=1)
    gather = node("g", "aggregator", collect="$item")
    async with rigged(at_once=20, duplicates=0.2) as rig:
        execution = await rig.start(stream(*body, gather=gather, window=window))
        most = await rig.most_between(execution, "b", "g")
        await rig.finished(execution)
        assert (await rig.context(execution))["$g"]["aggregated"] == ITEMS
        assert most <= window


# --- how far it is read ahead ---

PAGES = [[2 * page, 2 * page + 1] for page in range(5)]


def resting(window: int = 0, **split: Any) -> dict[str, Any]:
    """Items that rest, two a portion."""
    body = node("w", "wait", amount=60), node("b", "effect", of="$item")
    return stream(*body, gather=node("g", "aggregator", collect="$item"), of=PAGES, window=window, **split)


def asleep(rig: Rig) -> list[int]:
    """The items that have come to rest."""
    told = [s for s in rig.statuses if s.node_id == "w" and s.status == "waiting"]
    return sorted({s.lineage_stack[-1].item_index for s in told})


@pytest.mark.parametrize("manner", [{}, {"duplicates": 0.5, "at_once": 4}, {"duplicates": 1.0, "seed": 7}])
async def test_items_of_all_portions_are_under_way_at_once(rigged: Any, manner: dict[str, Any]) -> None:
    async with rigged(**manner) as rig:
        execution = await rig.start(resting())
        await rig.run(timers=False)
        assert asleep(rig) == list(range(10)), "no item has ended, and the last portion is read"
        await rig.run()
        await rig.finished(execution)
        assert (await rig.context(execution))["$g"]["aggregated"] == list(range(10))
        assert readings(rig) == [(page, 2 * page) for page in range(5)], "each portion once"
        assert sorted(rig.world.saw["b"]) == list(range(10)), "each item once"


@pytest.mark.parametrize(("window", "under_way", "read"), [(1, 1, 1), (4, 4, 2), (5, 5, 3), (7, 7, 4)])
async def test_it_is_read_no_further_than_there_is_room(
    rigged: Any, window: int, under_way: int, read: int
) -> None:
    async with rigged(duplicates=0.5, at_once=3) as rig:
        execution = await rig.start(resting(window, endless=True))
        await rig.run(timers=False)
        assert (len(asleep(rig)), len(readings(rig))) == (under_way, read)
        message = {"workflow_id": "wf", "execution_id": execution, "current_node": "", "phase": "cancel"}
        await rig.publish({**message, "accumulated_context": {}})
        await rig.run()
        await rig.finished(execution)


async def test_late_duplicates_of_what_publishes_and_what_reads_change_nothing(rigged: Any) -> None:
    async with rigged(seed=3, at_once=4) as rig:
        execution = await rig.start(resting(8))
        await rig.run(timers=False)
        assert asleep(rig) == list(range(8))
        for _ in range(2):
            for task in [task for task in rig.tasks if task.phase == "refill"]:
                await rig.publish(task)
            await rig.run(timers=False)
        assert asleep(rig) == list(range(8))
        await rig.run()
        await rig.finished(execution)
        assert readings(rig) == [(page, 2 * page) for page in range(5)]
        assert sorted(rig.world.saw["b"]) == list(range(10))


async def test_what_publishes_and_what_reads_are_parked_apart(calm: Rig) -> None:
    """One step was told of both: a pause holds both, and loses neither."""
    execution = await calm.start(resting())
    await calm.handle_node("s")
    await calm.handle_node("s", phase="refill")
    await calm.fill()
    assert {delivery.task.cursor for delivery in calm.inbox} == {(0, 2), (2, 2)}
    await calm.pause(execution)
    await calm.run(timers=False)
    assert not asleep(calm)
    await calm.resume(execution)
    await calm.run(timers=False)
    assert asleep(calm) == list(range(10))
    await calm.run()
    await calm.finished(execution)
    assert readings(calm) == [(page, 2 * page) for page in range(5)]


async def test_a_failure_ends_it_while_it_is_read_ahead(rigged: Any) -> None:
    """`fail_fast`: what is read meanwhile is of no use any more."""
    body = node("b", "boom", when="{{ $item == 3 }}"), node("w", "wait", amount=60)
    gather = node("g", "aggregator", error={"type": "ignore"})
    for seed in range(3):
        async with rigged(seed=seed, duplicates=0.4, at_once=4) as rig:
            status, context = await rig.result(stream(*body, gather=gather, of=PAGES, tolerated=0))
            assert status == "completed"
            assert context["$g"]["error"]["details"]["first_error"]["code"] == "BOOM"


async def test_a_lazy_source_in_each_item(rigged: Any) -> None:
    definition = flow(
        [
            node("s", "stream", of=[["a"], ["b", "c"]], window=2),
            node("t", "stream", of="{{ [[$item, 1], [], [2]] }}", window=1),
            node("b", of=["$items", "$index"]),
            node("h", "aggregator"),
            node("g", "aggregator", collect="$h.aggregated"),
        ],
        "s > t > b > h > g",
    )
    async with rigged(duplicates=0.4, at_once=3) as rig:
        _, context = await rig.result(definition)
        assert context["$g"]["aggregated"] == [
            [[[outer, item], i] for i, item in enumerate((outer, 1, 2))] for outer in "abc"
        ]


async def test_a_long_source_in_bounded_messages(rigged: Any) -> None:
    gather = node("g", "aggregator", reduce={"n": {"op": "count"}, "total": {"op": "sum", "value": "$item"}})
    portions = [list(range(at, at + 1000)) for at in range(0, 4000, 1000)]
    async with rigged() as rig:
        _, context = await rig.result(stream(node("b", of="$item"), gather=gather, of=portions, window=400))
        assert context["$g"]["reduced"] == {"n": 4000, "total": sum(range(4000))}
        assert rig.largest() < 64 * 1024


async def test_a_description_of_any_size_does_not_travel(rigged: Any) -> None:
    portions = [[f"{at}-{i}".ljust(500, "x") for i in range(50)] for at in range(4)]
    async with rigged(duplicates=0.3, at_once=3) as rig:
        _, context = await rig.result(stream(node("b", of="{{ $item[:4] }}"), of=portions, window=60))
        assert context["$g"]["count"] == 200
        assert context["$g"]["aggregated"][150] == "3-0x"
        assert rig.largest() < 64 * 1024


# --- failures ---

FAILING_INSIDE = flow(
    [
        node("s", "split", input_array="$trigger"),
        node("t", "stream", of=[[1, 2], [3]], endless=True, window=2),
        node("b", of="$item"),
        node("h", "aggregator"),
        node("x", "boom"),
        node("g", "aggregator", collect="$item"),
    ],
    "s > t > b > h > g",
    "s > x > g",
)


async def test_an_item_that_fails_too_much_closes_it_while_there_is_more_to_read(rigged: Any) -> None:
    body = node("b", "boom", when="{{ $item == 5 }}")
    gather = node("g", "aggregator", error={"type": "branch"})
    definition = stream(body, gather=gather, window=2, tolerated=0, endless=True)
    definition["nodes"].append(node("saved", of="$error.details.first_error.code"))
    definition["edges"].append({"id": "e", "src": "g", "dst": "saved", "port": "error"})
    async with rigged(duplicates=0.3) as rig:
        status, context = await rig.result(definition)
        assert (status, context["$saved"]) == ("completed", "BOOM")


@pytest.mark.parametrize("window", [2, 0])
async def test_a_reading_is_tried_again_as_the_split_says(rigged: Any, window: int) -> None:
    definition = stream(window=window, fails=2)
    definition["nodes"][0]["retry"] = {"attempts": 3, "delay": 10}
    async with rigged(duplicates=0.3) as rig:
        status, context = await rig.result(definition)
        assert status == "completed"
        assert context["$g"]["count"] == 15
        assert len(readings(rig)) == 15, "three attempts for each of five portions"


@pytest.mark.parametrize("policy", ["halt", "branch"])
async def test_a_reading_that_fails_for_good_fails_the_join(rigged: Any, policy: str) -> None:
    gather = node("g", "aggregator", error={"type": policy})
    definition = stream(gather=gather, window=3, fails=9, fails_from=3)
    definition["nodes"][0]["retry"] = {"attempts": 2, "delay": 1}
    definition["nodes"].append(node("saved", of="$error"))
    definition["edges"].append({"id": "e", "src": "g", "dst": "saved", "port": "error"})
    async with rigged(duplicates=0.3) as rig:
        execution = await rig.start(definition)
        await rig.run()
        completion = await rig.finished(execution)
        expected = {"message": "failed attempt 2", "code": "UNREADABLE", "node": "s"}
        if policy == "branch":
            assert completion.status == "completed"
            assert (await rig.context(execution))["$saved"] == expected
        else:
            assert completion.status == "halted"
            assert msgspec.to_builtins(completion.error) == expected


async def test_what_no_source_may_read_is_told(rig: Rig) -> None:
    status, context = await rig.result(
        stream(of=[7], gather=node("g", "aggregator", error={"type": "ignore"}))
    )
    assert status == "completed"
    assert context["$g"]["error"]["node"] == "s"


async def test_an_item_that_fails_takes_what_it_reads_along(rigged: Any) -> None:
    """One branch of an item fails while another reads without end: the item ends all the same."""
    for seed in range(4):
        async with rigged(seed=seed, duplicates=0.3, at_once=3) as rig:
            status, context = await rig.result(FAILING_INSIDE, [1, 2, 3])
            assert status == "completed"
            assert (context["$g"]["failed"], context["$g"]["count"]) == (3, 3)


async def test_so_it_does_when_a_worker_dies_over_it(inside: Any) -> None:
    for call in range(1, 60):
        async with inside(seed=call, at_once=2, duplicates=0.2, settings=GENEROUS) as rig:
            rig.faults.before, rig.faults.after = {call}, {call + 7}
            status, context = await rig.result(FAILING_INSIDE, [1, 2])
            assert (status, context["$g"]["failed"]) == ("completed", 2), call


async def test_a_time_out_ends_a_source_without_an_end(rig: Rig) -> None:
    definition = stream(
        node("w", "wait", amount=1), endless=True, window=2, gather=node("g", "aggregator", timeout=30)
    )
    execution = await rig.start(definition)
    await rig.run()
    completion = await rig.finished(execution)
    assert completion.error is not None
    assert (completion.status, completion.error.code) == ("failed", "AGGREGATOR_TIMEOUT")


async def test_cancelling_ends_a_source_without_an_end(rigged: Any) -> None:
    async with rigged(duplicates=0.2) as rig:
        execution = await rig.start(stream(endless=True, window=3))
        await rig.run(until=lambda: len(readings(rig)) > 10)
        message = {"workflow_id": "wf", "execution_id": execution, "current_node": "", "phase": "cancel"}
        await rig.publish({**message, "accumulated_context": {}, "details": "enough"})
        await rig.run()
        completion = await rig.finished(execution)
        assert (completion.status, completion.reason) == ("halted", "enough")


# --- those who come late, and those who come again ---


async def test_who_comes_back_late_publishes_items_of_a_portion_long_read(calm: Rig) -> None:
    """Somebody is told to publish items, and dies; before it is back, the next portions have been read."""
    portions = [list(range(16)), [16, 17], [18, 19]]
    definition = stream(node("b", of="$item"), of=portions, window=8)
    execution = await calm.start(definition)
    late: Any = None

    async def pass_on() -> bool:
        nonlocal late
        await calm.fill()
        if not calm.inbox:
            return False
        delivery = calm.inbox.pop(0)
        if delivery.task.phase == "refill" and delivery.task.cursor == (8, 10):
            late = delivery.task
            await calm.drop(delivery)
        else:
            await calm.handle(delivery)
        return True

    while await pass_on():
        pass
    assert late is not None
    assert len(readings(calm)) > 1, "others read on in the meantime"
    # A worker may take an item to its aggregator without a Task of its own.
    done = [t for t in calm.tasks if t.current_node in ("b", "g") and t.phase == "run"]
    for task in done:
        # Among them is the one that was told: it comes again, and is told again.
        await calm.publish(task)
    await calm.run()
    await calm.finished(execution)
    assert (await calm.context(execution))["$g"]["aggregated"] == list(range(20))


async def test_pausing_loses_nothing_that_is_to_be_read_or_published(rigged: Any) -> None:
    async with rigged(duplicates=0.0) as rig:
        execution = await rig.start(stream(window=4))
        for _ in range(6):
            await rig.pause(execution)
            await rig.run(timers=False)
            await rig.resume(execution)
            seen = len(rig.tasks)
            await rig.run(until=lambda seen=seen: len(rig.tasks) > seen + 2)
        await rig.run()
        await rig.finished(execution)
        assert (await rig.context(execution))["$g"]["count"] == 15


async def test_a_redriven_execution_reads_the_source_again_and_runs_what_does_not_stand(inside: Any) -> None:
    definition = stream(node("b", "effect", of="$item"), window=3)
    async with inside() as rig:
        first = await rig.start(definition)
        await rig.run()
        await rig.finished(first)
        ran = [s for s in rig.statuses if s.node_id == "b" and s.status == "success"]
        seeds = [
            Seed(s.step, scope_of(s.lineage_stack), msgspec.json.encode(Done(s.output, reused=True)))
            for s in ran
            if s.lineage_stack[-1].item_index != 8
        ]
        again = rig.name()
        values = {"$trigger": Raw(b"{}")}
        await rig.engine.start(compiled(definition), again, values, root=first, seeds=seeds)
        await rig.run()
        await rig.finished(again)
        assert (await rig.context(again))["$g"] == (await rig.context(first))["$g"]
        assert len(readings(rig)) == 10, "five portions, twice"
        assert rig.world.runs["b"] == 16, "fifteen items, and one of them again"
