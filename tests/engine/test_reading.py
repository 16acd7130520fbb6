"""Lazy sources: what a split reads, whoever reads it, and what may not be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from rune.core.errors import ErrorInfo
from rune.core.ids import derive
from rune.core.messages import Task, encode
from rune.core.node import NodeType, Portion, Role, StepContext
from rune.core.outcome import FanOut, Outcome, Source
from rune.core.ports import Delivery
from rune.engine import reading
from rune.engine.fanout import CHUNK
from rune.engine.seeding import edits_of
from rune.settings import Settings
from tests.core.graphs import Plain, node, raws
from tests.engine.bench import EXECUTION, Bench
from tests.engine.nodes import Aggregator

SECRET = "hunter2-and-more"


class Reader:
    """What is read, and what was asked for."""

    def __init__(self, *portions: Any) -> None:
        self.portions = portions
        self.asked: list[tuple[Any, int, int]] = []
        self.described: list[Any] = []

    async def close(self) -> None:
        """Nothing to close."""


class Lazy(NodeType, kw_only=True):
    """Reads what the test says."""

    name: ClassVar = "lazy"
    role: ClassVar = Role.SPLIT
    pure: ClassVar = True
    effects: ClassVar = False
    signs: ClassVar = True

    window: int = 0
    described: Any = None

    async def run(self, context: StepContext) -> Outcome:
        return FanOut(Source(lazy=self.described or {"of": "the test"}), window=self.window)

    async def read(
        self, context: StepContext, source: Mapping[str, Any], position: Any, index: int, wanted: int
    ) -> Portion:
        reader: Reader = context.service("reader")
        reader.described.append(source)
        reader.asked.append((position, index, wanted))
        portion: Any = reader.portions[(position or {"at": 0})["at"]]
        if isinstance(portion, Callable):  # type: ignore[arg-type]
            portion = portion(context)
        return portion  # type: ignore[no-any-return]


def more(*items: Any, at: int = 0, **rest: Any) -> Portion:
    """Some items, and where to read on; at 0 there is no more."""
    return Portion(list(items), {"at": at} if at else None, **rest)


def bench_of(
    *portions: Any,
    window: int = 0,
    settings: Settings | None = None,
    described: Any = None,
    collect: str = "$item",
) -> tuple[Bench, Reader]:
    reader = Reader(*portions)
    split = node("s", Lazy, window=window, described=described)
    bench = Bench(
        "s > b > g",
        nodes=(split, node("b", Plain), node("g", Aggregator, collect=collect)),
        settings=settings,
        credentials={"mail": {"password": SECRET}},
        services={"reader": lambda: reader},
    )
    return bench, reader


async def failure(bench: Bench) -> ErrorInfo:
    """How it fails."""
    await bench.start()
    completion = await bench.run()
    assert completion.error is not None
    return completion.error


async def test_each_portion_begins_where_the_one_before_ended() -> None:
    bench, reader = bench_of(more(1, 2, at=1), more(at=2), more(3))
    found = await bench.run_through()
    assert found["$g"]["aggregated"] == [1, 2, 3]
    assert reader.described == [{"of": "the test"}] * 3
    wanted = CHUNK
    assert reader.asked == [(None, 0, wanted), ({"at": 1}, 2, wanted), ({"at": 2}, 2, wanted)]


@pytest.mark.parametrize(("window", "wanted"), [(1, 100), (500, 500), (CHUNK + 1, CHUNK)])
async def test_about_as_many_are_wanted_as_have_room(window: int, wanted: int) -> None:
    bench, reader = bench_of(more(1), window=window)
    await bench.run_through()
    assert reader.asked == [(None, 0, wanted)]


async def test_reading_is_a_step_of_its_own_that_nobody_is_told_of() -> None:
    steps: list[str] = []
    bench, _ = bench_of(lambda context: steps.append(context.step) or more(1))
    await bench.run_through()
    (split,) = {status.step for status in bench.broker.statuses if status.node_id == "s"}
    assert steps == [derive(split, "~read", "0")]
    assert bench.told("s") == ["running", "success"]


@pytest.mark.parametrize(
    ("portion", "says"),
    [
        ([1, 2], "read list, which is no Portion"),
        (more(1, 2, labels=["one"]), "read 2 items with 1 labels or keys"),
        (more(1, keys=[]), "read 1 items with 0 labels or keys"),
        (Portion([1], position={"at": object()}), "which JSON cannot hold"),
        (more({"at": object()}), "which JSON cannot hold"),
    ],
)
async def test_what_is_no_portion_fails_the_join(portion: Any, says: str) -> None:
    bench, _ = bench_of(portion)
    error = await failure(bench)
    assert says in error.message
    assert error.node == "s"


# --- sizes ---


async def test_items_may_be_more_together_than_one_may_be() -> None:
    bench, _ = bench_of(more(*["x" * 300] * 10), settings=Settings(max_value=1000), collect="$index")
    found = await bench.run_through()
    assert found["$g"]["count"] == 10


async def test_an_item_that_is_too_large_fails_the_join() -> None:
    bench, _ = bench_of(more("small", "x" * 1000), settings=Settings(max_value=1000))
    error = await failure(bench)
    assert (error.code, error.node) == ("VALUE_TOO_LARGE", "s")
    assert "an item that was read is 1,002 bytes" in error.message
    assert "RUNE_MAX_VALUE" in error.message


async def test_there_is_a_limit_to_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LARGEST", 2000)
    bench, _ = bench_of(more(*["x" * 300] * 10), settings=Settings(max_value=1000))
    error = await failure(bench)
    assert (error.code, error.message) == (
        "PORTION_TOO_LARGE",
        "read 3,031 bytes at once; read fewer items at a time",
    )


async def test_a_position_of_any_size_comes_back_and_does_not_travel() -> None:
    columns = ["c" * 100] * 1000
    bench, reader = bench_of(
        Portion([1], {"at": 1, "columns": columns}), Portion([2], {"at": 2, "columns": columns}), more(3)
    )
    largest = largest_message(bench)
    found = await bench.run_through()
    assert found["$g"]["aggregated"] == [1, 2, 3]
    assert [position for position, _, _ in reader.asked[1:]] == [
        {"at": at, "columns": columns} for at in (1, 2)
    ]
    assert largest() < 10_000


async def test_a_position_that_is_larger_than_any_value_is_refused() -> None:
    bench, _ = bench_of(Portion([1], {"at": 1, "to": "x" * 1000}), settings=Settings(max_value=1000))
    error = await failure(bench)
    assert (error.code, error.message[:27]) == ("VALUE_TOO_LARGE", "the position in its source ")


async def test_a_description_of_any_size_is_read_whole_and_does_not_travel() -> None:
    parts = [{"ref": f"rune:{n:040x}", "count": 1000, "bytes": 9999} for n in range(4000)]
    bench, reader = bench_of(more(1, at=1), more(2), described={"parts": parts})
    largest = largest_message(bench)
    found = await bench.run_through()
    assert found["$g"]["aggregated"] == [1, 2]
    assert reader.described == [{"parts": parts}] * 2
    assert largest() < 10_000


def largest_message(bench: Bench) -> Callable[[], int]:
    """Begin to look at what is published; what is returned says how large the largest of it was."""
    sizes: list[int] = []
    finish = bench.broker.finish

    async def look(delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        sizes.extend(len(encode(task)) for task in tasks)
        await finish(delivery, tasks)

    bench.broker.finish = look  # type: ignore[method-assign]
    return lambda: max(sizes)


async def test_secrets_among_the_items_are_masked() -> None:
    class Signing(Lazy, kw_only=True):
        async def read(self, context: StepContext, *rest: Any) -> Portion:  # type: ignore[override]
            await context.credential("mail")
            return more({"password": SECRET}, labels=[SECRET])

    bench, _ = bench_of()
    flow = bench.flow
    flow.nodes["s"] = msgspec.structs.replace(
        flow.nodes["s"], type=Signing, parameters=node("s", Signing).parameters
    )
    await bench.start()
    await bench.run()
    published = msgspec.json.encode([bench.broker.completions_, bench.broker.statuses]).decode()
    assert SECRET not in published


async def test_a_reading_whose_worker_dies_again_and_again_fails_the_join() -> None:
    bench, reader = bench_of(more(1), settings=Settings(max_starts=2))
    await bench.start()
    await bench.handle("s")
    task = bench.broker.tasks[0]
    split = task.step
    for _ in range(2):
        await bench.state.lease(EXECUTION, [(derive(split, "~read", "0"), ())], 1, bench.clock.now + 1)
        bench.clock.now += 2
    completion = await bench.run()
    assert completion.error is not None
    assert (completion.status, completion.error.code, reader.asked) == ("failed", "WORKER_LOST", [])


async def test_edited_items_stay_edited_however_they_are_read() -> None:
    bench, _ = bench_of(more("a", "b", at=1), more("c"), window=1)
    root = "first"
    split = derive(derive(root, "~start"), "s")
    await bench.state.put(EXECUTION, {edits_of(split): b'{"1": "B", "2": "C"}'})
    await bench.engine.start(bench.flow, EXECUTION, raws({"$trigger": None}), root=root)
    found = await bench.run_through_rest()
    assert found["$g"]["aggregated"] == ["a", "B", "C"]


async def test_a_task_to_read_what_has_been_read_is_dropped() -> None:
    bench, reader = bench_of(more(1, 2, at=1), more(3))
    await bench.start()
    await bench.handle("s")
    late: Task = bench.broker.tasks[0]
    await bench.handle("s")
    newer = next(task for task in bench.broker.tasks if task.phase == "refill")
    # As whoever opened it is told when it comes back: the same cursor, with what is known now.
    bench.broker.tasks.append(msgspec.structs.replace(newer, cursor=late.cursor))
    found = await bench.run_through_rest()
    assert found["$g"]["aggregated"] == [1, 2, 3]
    assert len(reader.asked) == 2
