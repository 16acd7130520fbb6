"""From items to Tasks: every item once, in messages of the right size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rune.backends.memory import MemoryState
from rune.core.context import Context, Layer
from rune.core.ids import derive
from rune.core.messages import Branch, Frame, Task, branches_of, decode_task, encode
from rune.core.outcome import FanOut, Source
from rune.core.step import Step
from rune.core.workflow import Edge
from rune.engine.fanout import CHUNK, Items, pack
from rune.engine.seeding import edits_of
from rune.engine.values import FAN_OUT_INLINE, INLINE, Values
from tests.core.graphs import Gather, Scatter, branch, frame, graph, node, plain, raw, raws, step
from tests.engine.bench import Spy

ONE = graph("s > b > g", nodes=(node("s", Scatter), node("g", Gather)))
TWO = graph("s > b > g", "s > c > g", "s:error > e", nodes=(node("s", Scatter), node("g", Gather)))
LIMIT = 64 * 1024
EDGE = Edge("s-b", "s", "b")


class Fan:
    """A split at work."""

    def __init__(self, flow: Any = ONE, of: Branch | None = None) -> None:
        self.state = Spy(MemoryState())
        self.values = Values(self.state)
        self.items = Items(self.values)
        self.step: Step = step(flow, "s", of or branch("barrier"))

    async def tasks(self, fan_out: FanOut, *span: int) -> list[Task]:
        """The Tasks as they are delivered."""
        made = await self.items.tasks(self.step, await self.items.fixed("exec", fan_out), *span)
        return [decode_task(encode(task)) for task in made]

    async def read(self, task: Task, name: str = "$item") -> list[Any]:
        """What the branches of a Task find under a name."""
        found = []
        for one in branches_of(task):
            layers = await self.values.load("exec", one.context.refs)
            found.append(one.context.value(name, layers.__getitem__))
        return found

    async def read_all(self, tasks: list[Task], name: str = "$item") -> list[Any]:
        return [value for task in tasks for value in await self.read(task, name)]


def listed(items: list[Any], **rest: Any) -> FanOut:
    return FanOut(Source(items=items), **rest)


def counted(n: int, **rest: Any) -> FanOut:
    return FanOut(Source(stop=n), **rest)


def sizes(tasks: list[Task]) -> list[int]:
    return [len(branches_of(task)) for task in tasks]


# --- what was edited ---


async def test_a_stored_list_was_edited_before_it_was_stored() -> None:
    """As it is when the outcome of a split is found on record after a crash."""
    fan = Fan()
    await fan.state.put("exec", {edits_of("barrier"): b'{"1": "B"}'})
    first = await fan.items.fixed("exec", await fan.items.edited(fan.step, listed(["a", "b"], window=9)))
    again = await fan.items.fixed("exec", await fan.items.edited(fan.step, first))
    assert again == first
    assert await fan.read_all(await fan.tasks(again)) == ["a", "B"]


# --- one item, one branch ---


async def test_every_item_is_a_branch_with_its_place() -> None:
    fan = Fan(of=branch("barrier", {"$t": 1}, path=".0"))
    tasks = await fan.tasks(listed(["x", "y"]))
    branches = [one for task in tasks for one in branches_of(task)]
    assert [one.lineage for one in branches] == [
        (Frame("s", i, f"exec_s_{i}", 2, "barrier"),) for i in range(2)
    ]
    assert [one.step for one in branches] == [derive("barrier", "s-b", str(i)) for i in range(2)]
    assert {(task.current_node, task.from_node, task.edge, task.path) for task in tasks} == {
        ("b", "s", "s-b", "")
    }
    assert await fan.read_all(tasks) == ["x", "y"]
    assert await fan.read_all(tasks, "$s") == [{"count": 2}] * 2
    assert await fan.read_all(tasks, "$t") == [1, 1]


async def test_an_item_takes_every_edge_but_the_error_edge() -> None:
    tasks = await Fan(TWO).tasks(listed(["x", "y"]))
    assert [(task.current_node, task.path) for task in tasks] == [
        ("b", ".0"),
        ("b", ".0"),
        ("c", ".1"),
        ("c", ".1"),
    ]
    assert len({one.step for task in tasks for one in branches_of(task)}) == 4


async def test_labels_and_keys_travel_with_their_items() -> None:
    fan_out = listed(list("abc"), labels=["A", "B", "C"], keys=["1", "2", "3"])
    for batch in (1, 3):
        tasks = await Fan().tasks(msgspec.structs.replace(fan_out, batch=batch))
        frames = [one.lineage[-1] for task in tasks for one in branches_of(task)]
        assert [(frame.label, frame.key) for frame in frames] == [("A", "1"), ("B", "2"), ("C", "3")]


async def test_labels_and_keys_are_stored_with_a_stored_list() -> None:
    fan = Fan()
    fan_out = await fan.items.fixed(
        "exec", listed(list("abcd"), labels=list("ABCD"), keys=list("1234"), window=2)
    )
    assert (fan_out.source.items, fan_out.labels, fan_out.keys) == (None, None, None)
    tasks = await fan.tasks(fan_out, 2, 4)
    frames = [one.lineage[-1] for task in tasks for one in branches_of(task)]
    assert [(frame.item_index, frame.label, frame.key) for frame in frames] == [(2, "C", "3"), (3, "D", "4")]
    assert await fan.read_all(tasks) == ["c", "d"]


async def test_the_items_around_an_item_have_names_of_their_own() -> None:
    outer = branch(
        "barrier",
        {"$item": "middle"},
        shared={"$item.0": "outermost"},
        lineage=(frame("o", 1), frame("m", 2)),
    )
    fan = Fan(of=outer)
    tasks = await fan.tasks(listed(["inner"]))
    (one,) = [one for task in tasks for one in branches_of(task)]
    assert [frame.split_node_id for frame in one.lineage] == ["o", "m", "s"]
    assert one.lineage[-1].branch_id == "exec_m_2_s_0"
    for name, value in (("$item.0", "outermost"), ("$item.1", "middle"), ("$item", "inner")):
        assert await fan.read_all(tasks, name) == [value]


async def test_a_lineage_written_by_hand_need_not_name_its_item() -> None:
    """RFC 004's messages have a lineage, and whatever context they please."""
    fan = Fan(of=branch("barrier", {"$t": 1}, lineage=(frame("o", 1),)))
    assert await fan.read_all(await fan.tasks(listed(["inner"]))) == ["inner"]


# --- sources ---


async def test_a_range_makes_its_items_as_they_are_needed() -> None:
    fan = Fan()
    assert await fan.read_all(await fan.tasks(FanOut(Source(start=10, stop=0, stride=-3)))) == [10, 7, 4, 1]
    assert await fan.read_all(await fan.tasks(counted(100), 40, 43)) == [40, 41, 42]
    assert fan.state.calls == []


@pytest.mark.parametrize(
    ("items", "window", "stored"), [(CHUNK, 0, False), (CHUNK + 1, 0, True), (3, 1, True)]
)
async def test_a_list_is_stored_if_one_task_cannot_publish_it(items: int, window: int, stored: bool) -> None:
    fan = Fan()
    fixed = await fan.items.fixed("exec", listed(list(range(items)), window=window))
    assert bool(fixed.source.stored) == stored
    assert len(fixed.source) == items
    assert fan.state.calls == (["put"] if stored else [])


async def test_a_stored_list_is_fetched_once() -> None:
    fan = Fan()
    fan_out = await fan.items.fixed("exec", listed(list(range(10)), window=2))
    for start in range(0, 10, 2):
        assert await fan.read_all(await fan.tasks(fan_out, start, start + 2)) == [start, start + 1]
    assert fan.state.calls.count("get") == 1


# --- how many at a time ---


async def test_a_window_publishes_only_its_first_items() -> None:
    fan = Fan()
    assert await fan.read_all(await fan.tasks(counted(100, window=3))) == [0, 1, 2]


async def test_many_items_leave_a_task_for_the_rest() -> None:
    fan = Fan()
    seen: list[Any] = []
    tasks = await fan.tasks(counted(2 * CHUNK + 5))
    for cursor in ((CHUNK, 2 * CHUNK + 5), (2 * CHUNK, 2 * CHUNK + 5)):
        *tasks, rest = tasks
        seen += await fan.read_all(tasks)
        assert (rest.current_node, rest.phase, rest.cursor, rest.step) == ("s", "refill", cursor, "barrier")
        fan_out = msgspec.json.decode(rest.details, type=FanOut)
        tasks = await fan.tasks(fan_out, *cursor)
    assert seen + await fan.read_all(tasks) == list(range(2 * CHUNK + 5))


@pytest.mark.parametrize(
    ("total", "batch", "expected"),
    [
        (5, 0, [1] * 5),
        (100, 0, [1] * 100),
        (640, 0, [10] * 64),
        (4000, 0, [62] * 64 + [32]),
        (5, 2, [2, 2, 1]),
        (300, 1, [1] * 300),
    ],
)
async def test_items_share_messages_when_they_are_many(total: int, batch: int, expected: list[int]) -> None:
    assert sizes(await Fan().tasks(counted(total, batch=batch))) == expected


async def test_a_batch_of_the_engines_own_choice_has_at_most_256_items() -> None:
    *tasks, _ = await Fan().tasks(counted(1_000_000))
    assert sizes(tasks) == [256] * (CHUNK // 256)


async def test_a_batch_writes_what_its_items_share_once() -> None:
    fan = Fan(of=branch("barrier", {"$t": "x" * 500}))
    (task,) = await fan.tasks(counted(100, batch=100))
    assert len(encode(task)) < 500 + 100 * 100


async def test_a_context_that_every_item_would_carry_is_stored() -> None:
    fan = Fan(of=branch("barrier", {"$t": "x" * FAN_OUT_INLINE}))
    tasks = await fan.tasks(listed([1, 2]))
    assert all(task.refs and "$t" not in task.accumulated_context for task in tasks)
    assert await fan.read_all(tasks, "$t") == ["x" * FAN_OUT_INLINE] * 2


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([10, 500, 5000, 10_000, INLINE - 200, INLINE, 70_000]), min_size=1, max_size=30),
    st.integers(0, 40),
    st.integers(0, 5000),
    st.sampled_from([0, 30, 2000]),
)
@example([INLINE - 200] * 8, 40, 0, 0)
@example([10] * 60, 60, 0, 2000)
async def test_no_message_is_larger_than_64_kb(items: list[int], batch: int, shared: int, label: int) -> None:
    fan = Fan(of=branch("barrier", {"$t": "t" * shared}))
    whole = ["x" * size for size in items]
    labels = ["l" * label for _ in items] if label else None
    tasks = await fan.tasks(listed(whole, batch=batch, labels=labels, keys=labels))
    assert max(len(encode(task)) for task in tasks) <= LIMIT
    indexes = [one.lineage[-1].item_index for task in tasks for one in branches_of(task)]
    assert dict(zip(indexes, await fan.read_all(tasks), strict=True)) == dict(enumerate(whole))


# --- packing ---


def item(i: int, shared: Layer, edge: str = "s-b", path: str = "", own: Any = None) -> tuple[Edge, Branch]:
    context = Context(raws({"$item": own if own is not None else i}), shared)
    return EDGE, Branch(f"step{i}", (frame("s", i),), context, path, "s", edge)


TASK = step(ONE, "s").task


def test_branches_outside_a_fan_out_travel_alone() -> None:
    tasks = pack(TASK, [(EDGE, branch(f"s{i}", {"$a": i})) for i in range(3)])
    assert [(task.step, task.twigs) for task in tasks] == [(f"s{i}", ()) for i in range(3)]


def test_items_that_go_the_same_way_share_a_message_again() -> None:
    shared = Layer(raws({"$t": 1}))
    tasks = pack(TASK, [item(i, shared) for i in range(3)])
    assert sizes(tasks) == [3]
    assert [plain(one.context.inline()) for one in branches_of(tasks[0])] == [
        {"$t": 1, "$item": i} for i in range(3)
    ]


def test_items_that_differ_in_more_than_themselves_part() -> None:
    shared, other = Layer(raws({"$t": 1})), Layer(raws({"$t": 2}))
    children = [item(0, shared), item(1, other), item(2, shared, path=".1"), item(3, shared)]
    elsewhere = (Edge("s-c", "s", "c"), item(4, shared, "s-c")[1])
    cousin = (EDGE, msgspec.structs.replace(item(5, shared)[1], lineage=(frame("s", 5, "b2"),)))
    tasks = pack(TASK, [*children, elsewhere, cousin])
    assert sorted(sizes(tasks)) == [1, 1, 1, 1, 2]
    steps = sorted(one.step for task in tasks for one in branches_of(task))
    assert steps == [f"step{i}" for i in range(6)]


def test_a_batch_ends_where_it_grows_heavy() -> None:
    shared = Layer({})
    tasks = pack(TASK, [item(i, shared, own="x" * 10_000) for i in range(10)])
    assert max(len(encode(task)) for task in tasks) <= LIMIT
    assert 3 <= max(sizes(tasks)) <= 5


def test_packing_and_unpacking_gives_the_same_branches() -> None:
    shared = Layer(raws({"$t": 1}))
    children = [item(i, shared, path=".0") for i in range(5)]
    back = [one for task in pack(TASK, children) for one in branches_of(decode_task(encode(task)))]
    for (_, sent), got in zip(children, back, strict=True):
        assert (got.step, got.lineage, got.path, got.from_node, got.edge) == (
            sent.step,
            sent.lineage,
            sent.path,
            sent.from_node,
            sent.edge,
        )
        assert plain(got.context.inline()) == plain(sent.context.inline())


def test_a_task_goes_to_the_pool_of_its_node_whoever_sends_it() -> None:
    task, there = msgspec.structs.replace(TASK, pool="cpu"), Edge("s-c", "s", "c", pool="gpu")
    shared = Layer({})
    children = [(edge, item(i, shared)[1]) for edge in (EDGE, there) for i in range(2)]
    for sent in (children, children[1:3], [(there, branch()), (EDGE, branch())]):
        assert sorted(made.pool for made in pack(task, sent)) == ["", "gpu"]


def test_a_task_keeps_what_belongs_to_the_execution() -> None:
    task = msgspec.structs.replace(
        TASK, priority=3, entry="b", workflow_definition=raw({}), attempt=4, cursor=(1, 2)
    )
    for made in pack(task, [item(0, Layer({})), item(1, Layer({})), *[(EDGE, branch())]]):
        assert (made.priority, made.entry, made.definition, made.started_at) == (
            3,
            "b",
            "def",
            TASK.started_at,
        )
        assert plain(made.workflow_definition) == {}
        assert (made.attempt, made.cursor, made.phase) == (1, None, "run")
