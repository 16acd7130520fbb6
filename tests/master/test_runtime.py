"""The runtime, in this process and behind RabbitMQ and Redis: the same to whoever asks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import Raw

from rune.core.ids import new_execution_id
from rune.core.messages import CompletionMessage, NodeStatusMessage, Task
from rune.core.node import NodeType, StepContext
from rune.core.operations import Seed
from rune.core.outcome import Done, Outcome
from rune.core.plan import call_key
from rune.core.registry import Registry
from rune.distributed import run_scheduler, run_worker
from rune.embedded import Embedded
from rune.formats.graph import compile_workflow
from rune.master import local
from rune.master.local import Local
from rune.master.remote import Remote
from rune.master.runtime import Runtime
from rune.nodes import load_builtin
from rune.settings import Settings
from tests.conformance.flows import flow, node
from tests.engine.nodes import Boom, Effect
from tests.servers.rabbitmq import shared_rabbitmq
from tests.servers.redis import shared_redis


class Tally(NodeType, kw_only=True):
    """Counts in a variable of the execution."""

    name: ClassVar = "tally"

    async def run(self, context: StepContext) -> Outcome:
        found = await context.variables()
        return Done({"found": found}, sets={"n": found.get("n", 0) + 1})


REGISTRY = Registry([*load_builtin(), Effect, Boom, Tally])
CHAIN = flow([node("a", "log", message="one"), node("b", "log", message="two")], "a > b")
WAITS = flow([node("w", "wait", resume="webhook"), node("e", "log", message="$w.payload.n")], "w > e")
LATER = flow([node("w", "wait", amount=1, unit="hours")])
CALLS = {**flow([node("c", "workflow", workflow="later")]), "workflows": {"later": LATER}}

_databases = itertools.count()


class Site:
    """A runtime, all it tells, and ways to look behind it."""

    def __init__(self, runtime: Runtime, publish: Callable[[Task], Awaitable[None]]) -> None:
        self.runtime = runtime
        self.publish = publish
        self.statuses: list[NodeStatusMessage] = []
        self.ended: dict[str, CompletionMessage] = {}
        self._news = asyncio.Event()

    async def hear_statuses(self) -> None:
        async for batch in self.runtime.statuses():
            self.statuses += batch.messages
            await batch.done()
            self._news.set()

    async def hear_completions(self) -> None:
        async for completion in self.runtime.completions():
            self.ended[completion.execution_id] = completion
            await self.runtime.completed(completion)
            self._news.set()

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something to be heard."""
        async with asyncio.timeout(20):
            while not true():
                self._news.clear()
                await self._news.wait()

    async def start(self, definition: Mapping[str, Any], input: Any = None) -> str:
        id = new_execution_id()
        made = compile_workflow(definition, REGISTRY, definition=msgspec.json.encode(definition))
        await self.runtime.start(made, id, {"$trigger": Raw(msgspec.json.encode(input or {}))})
        return id

    async def completion(self, id: str) -> CompletionMessage:
        await self.until(lambda: id in self.ended)
        return self.ended[id]

    async def buried(self, id: str) -> None:
        """Wait until it is: when its completion is safe, a moment later."""
        async with asyncio.timeout(20):
            while await self.runtime.standings([id]) != {id: "ended"}:
                await asyncio.sleep(0.02)

    async def step(self, id: str, node: str, status: str) -> str:
        """The step of a node, once it has this status."""

        def found() -> list[NodeStatusMessage]:
            wanted = (id, node, status)
            return [s for s in self.statuses if (s.execution_id, s.node_id, s.status) == wanted]

        await self.until(found)
        return found()[0].step

    def sets(self, id: str) -> list[tuple[int, Any]]:
        """What was told of variables: when they were set, and what they are."""
        told = {s.sets.turn: s.sets.values for s in self.statuses if s.execution_id == id and s.sets}
        return [(turn, msgspec.json.decode(values or b"null")) for turn, values in sorted(told.items())]


@asynccontextmanager
async def embedded(directory: Path, database: str | None) -> AsyncIterator[Site]:
    where = str(directory / database) if database else None
    async with Embedded.open(Settings(), REGISTRY, where) as rune:
        yield Site(Local(rune), lambda task: rune.broker.publish([task]))


@asynccontextmanager
async def distributed() -> AsyncIterator[Site]:
    rabbit, redis = shared_rabbitmq(), shared_redis()
    vhost, db = rabbit.add_vhost(), next(_databases) % 14 + 1
    redis.call_in(db, "FLUSHDB")
    settings = Settings(broker_url=rabbit.url(vhost), state_url=f"{redis.url}/{db}", grace=5, concurrency=7)
    stop = asyncio.Event()
    try:
        async with Remote.open(settings, REGISTRY) as runtime:
            working = [
                asyncio.create_task(run_worker(settings, REGISTRY, stop.wait())),
                asyncio.create_task(run_scheduler(settings, stop.wait())),
            ]
            try:
                yield Site(runtime, lambda task: runtime._rabbit.publish([task]))
            finally:
                stop.set()
                await asyncio.gather(*working)
    finally:
        rabbit.delete_vhost(vhost)


@asynccontextmanager
async def opened(kind: str, directory: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        if kind == "distributed":
            yield await stack.enter_async_context(distributed())
        else:
            yield await stack.enter_async_context(
                embedded(directory, "rune.db" if kind == "sqlite" else None)
            )


@pytest.fixture(params=["memory", "sqlite", "distributed"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened(request.param, tmp_path) as made:
        ears = [asyncio.create_task(hear()) for hear in (made.hear_statuses, made.hear_completions)]
        try:
            yield made
        finally:
            for ear in ears:
                ear.cancel()
            await asyncio.gather(*ears, return_exceptions=True)


# --- executions --------------------------------------------------------------------------------------------


async def test_what_is_started_is_told_of_and_ends(site: Site) -> None:
    id = await site.start(CHAIN)
    completion = await site.completion(id)
    assert completion.status == "completed"
    await site.step(id, "b", "success")
    told = [(s.node_id, s.status) for s in site.statuses if s.execution_id == id]
    assert {("a", "running"), ("a", "success"), ("b", "running")} <= set(told)
    await site.buried(id)
    assert await site.runtime.standings([id, "exec_nobody"]) == {id: "ended"}
    assert await site.runtime.holding(id) is None


async def test_what_is_cancelled_ends_as_halted_with_the_reason(site: Site) -> None:
    id = await site.start(LATER)
    await site.step(id, "w", "waiting")
    await site.runtime.cancel(id, "enough", workflow="wf")
    completion = await site.completion(id)
    assert (completion.status, completion.reason, completion.workflow_id) == ("halted", "enough", "wf")


async def test_what_is_paused_rests_until_it_is_resumed(site: Site) -> None:
    id = await site.start(WAITS)
    step = await site.step(id, "w", "waiting")
    assert await site.runtime.pause(id)
    if isinstance(site.runtime, Remote):
        # A worker that has not heard it reads it within a second.
        await asyncio.sleep(1.2)
    assert await site.runtime.wake(id, step, Raw(b'{"n": 1}'))
    async with asyncio.timeout(20):
        while not ((held := await site.runtime.holding(id)) and held.parked):
            await asyncio.sleep(0.02)
    assert held.paused
    assert await site.runtime.resume(id)
    assert (await site.completion(id)).status == "completed"
    await site.buried(id)
    assert not await site.runtime.pause(id)
    assert not await site.runtime.resume(id)


async def test_what_waits_for_a_call_goes_on_with_its_payload(site: Site) -> None:
    id = await site.start(WAITS)
    step = await site.step(id, "w", "waiting")
    assert not await site.runtime.wake(id, "another", Raw(b"{}"))
    assert await site.runtime.wake(id, step, Raw(b'{"n": 42}'))
    completion = await site.completion(id)
    output = msgspec.json.decode(completion.final_context["$w"])
    assert (output["payload"], output["timer_id"]) == ({"n": 42}, step)
    assert msgspec.json.decode(completion.final_context["$e"])["message"] == "42"
    assert not await site.runtime.wake(id, step, Raw(b'{"n": 43}'))


async def test_what_waits_for_another_execution_is_woken_by_nobody_else(site: Site) -> None:
    id = await site.start(CALLS)
    step = await site.step(id, "c", "waiting")
    assert not await site.runtime.wake(id, call_key(step, 1), Raw(b'{"n": 1}'))
    await site.runtime.cancel(id, "enough", workflow="wf")
    assert (await site.completion(id)).reason == "enough"


async def test_of_many_calls_at_once_one_counts(site: Site) -> None:
    id = await site.start(WAITS)
    step = await site.step(id, "w", "waiting")
    woken = await asyncio.gather(
        *(site.runtime.wake(id, step, Raw(b'{"n": %d}' % (n % 2))) for n in range(10))
    )
    assert woken.count(True) == 1
    output = msgspec.json.decode((await site.completion(id)).final_context["$w"])
    assert output["payload"] == {"n": woken.index(True) % 2}


async def test_a_call_may_bring_much(site: Site) -> None:
    id = await site.start(
        flow(
            [node("w", "wait", resume="webhook"), node("e", "log", message="{{ $w.payload | length }}")],
            "w > e",
        )
    )
    step = await site.step(id, "w", "waiting")
    assert await site.runtime.wake(id, step, Raw(msgspec.json.encode("x" * 200_000)))
    completion = await site.completion(id)
    assert msgspec.json.decode(completion.final_context["$e"])["message"] == "200000"


async def test_what_it_waits_for_can_be_seen(site: Site) -> None:
    id = await site.start(LATER)
    step = await site.step(id, "w", "waiting")
    assert await site.runtime.standings([id]) == {id: "alive"}
    held = await site.runtime.holding(id)
    assert held is not None
    assert [timer.id for timer in held.timers] == [step]
    assert [(timer.execution, timer.id) for timer in await site.runtime.timers()] == [(id, step)]


async def test_what_is_seeded_is_not_run_again(site: Site) -> None:
    first = await site.start(CHAIN)
    await site.completion(first)
    step = await site.step(first, "a", "success")
    seed = Seed(step, (), msgspec.json.encode(Done({"message": "seeded"}, reused=True)))
    id = new_execution_id()
    made = compile_workflow(CHAIN, REGISTRY, definition=msgspec.json.encode(CHAIN))
    for _ in range(2):
        await site.runtime.start(made, id, {"$trigger": Raw(b"{}")}, root=first, seeds=[seed])
    completion = await site.completion(id)
    assert msgspec.json.decode(completion.final_context["$a"]) == {"message": "seeded"}
    assert msgspec.json.decode(completion.final_context["$b"])["message"] == "two"
    assert await site.step(id, "a", "success") == step
    (told,) = {
        (s.details or {}).get("reused")
        for s in site.statuses
        if (s.execution_id, s.step, s.status) == (id, step, "success")
    }
    assert told


@pytest.mark.parametrize("turn", [5, 0])
async def test_what_is_seeded_has_set_what_it_set(site: Site, turn: int) -> None:
    counts = flow([node("a", "tally"), node("b", "tally")], "a > b")
    first = await site.start(counts)
    await site.completion(first)
    step = await site.step(first, "a", "success")
    await site.step(first, "b", "success")
    assert site.sets(first) == [(1, {"n": 1}), (2, {"n": 2})]
    record = msgspec.json.encode(Done({"found": {}}, reused=True, sets={"n": 10}))
    seed = Seed(step, (), record, sets=(("n", b"10"),), turn=turn)
    id = new_execution_id()
    made = compile_workflow(counts, REGISTRY, definition=msgspec.json.encode(counts))
    for _ in range(2):
        await site.runtime.start(made, id, {"$trigger": Raw(b"{}")}, root=first, seeds=[seed])
    completion = await site.completion(id)
    assert msgspec.json.decode(completion.final_context["$b"]) == {"found": {"n": 10}}
    await site.step(id, "b", "success")
    # What is set when it is met has its turn here, not there.
    at = turn or 1
    assert site.sets(id) == [(at, {"n": 10}), (at + 1, {"n": 11})]


# --- listening ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite", "distributed"])
async def test_what_was_not_done_with_comes_again(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as site:
        id = await site.start(CHAIN)
        async with asyncio.timeout(20):
            first = await anext(aiter(site.runtime.completions()))
            assert first.execution_id == id
            statuses = aiter(site.runtime.statuses())
            batch = await anext(statuses)
            await statuses.aclose()  # type: ignore[attr-defined]
            again = await anext(aiter(site.runtime.completions()))
            assert again == first
            steps = {status.step for status in batch.messages}
            async for batch in site.runtime.statuses():
                steps -= {status.step for status in batch.messages}
                await batch.done()
                if not steps:
                    break
            await site.runtime.completed(again)


async def test_a_completion_that_nobody_acknowledged_outlives_the_process(tmp_path: Path) -> None:
    async with embedded(tmp_path, "rune.db") as site:
        id = await site.start(CHAIN)
        async with asyncio.timeout(20):
            await anext(aiter(site.runtime.completions()))
    for acknowledge in (True, False):
        async with embedded(tmp_path, "rune.db") as site, asyncio.timeout(20):
            if not acknowledge:
                assert await site.runtime.standings([id]) == {id: "ended"}
                break
            completion = await anext(aiter(site.runtime.completions()))
            assert completion.execution_id == id
            await site.runtime.completed(completion)


async def test_whoever_stores_too_slowly_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MANY", 20)
    async with Embedded.open(Settings(concurrency=1, prefetch=1), REGISTRY) as rune:
        site = Site(Local(rune), lambda task: rune.broker.publish([task]))
        items = flow(
            [node("s", "split", source={"range": 500}, batch_size=1), node("n", "log", message="x")], "s > n"
        )
        await site.start(items)
        async with asyncio.timeout(20):
            while rune.taking.is_set():
                await asyncio.sleep(0)
        hearing = asyncio.create_task(site.hear_statuses())
        await site.until(lambda: sum(s.status == "success" for s in site.statuses) >= 500)
        hearing.cancel()


# --- the system --------------------------------------------------------------------------------------------


def letter(execution: str) -> Task:
    return Task(
        workflow_id="wf",
        execution_id=execution,
        current_node="nowhere",
        accumulated_context={},
        workflow_definition=Raw(msgspec.json.encode(CHAIN)),
    )


async def test_dead_letters_can_be_read_tried_again_and_dropped(site: Site) -> None:
    runtime = site.runtime
    for number in range(3):
        await site.publish(letter(f"exec_{number}"))
    async with asyncio.timeout(20):
        while len(letters := await runtime.letters()) < 3:
            await asyncio.sleep(0.05)
    assert {dead.execution for dead in letters} == {"exec_0", "exec_1", "exec_2"}
    assert all("no node 'nowhere'" in dead.reason and dead.at > 0 for dead in letters)
    first, second, third = letters
    assert await runtime.letters(limit=1) == [first]
    assert await runtime.letters(after=first.id) == [second, third]
    assert await runtime.letter(second.id) == second
    assert await runtime.drop_letter(first.id)
    assert not await runtime.drop_letter(first.id)
    assert not await runtime.redrive_letter("nothing")
    assert await runtime.letter(first.id) is None
    assert await runtime.redrive_letter(second.id)
    async with asyncio.timeout(20):
        # Its execution has ended: it is dropped when it is met.
        while await runtime.letters() != [third]:
            await asyncio.sleep(0.05)


async def test_queues_have_a_depth(site: Site) -> None:
    queues = {queue.name: queue for queue in await site.runtime.queues()}
    if "tasks" in queues:
        assert queues["tasks"].ready == 0
        return
    async with asyncio.timeout(20):
        while {q.name: q.consumers for q in await site.runtime.queues()}["workflow.execution"] != 1:
            await asyncio.sleep(0.05)
    assert {"workflow.node.status", "workflow.completion", "workflow.execution.dead"} <= queues.keys()


async def test_members_are_there_while_they_are(site: Site) -> None:
    async with asyncio.timeout(20):
        while len(members := await site.runtime.members()) < 2:
            await asyncio.sleep(0.05)
    scheduler, worker = sorted(members, key=lambda member: member.role)
    assert (scheduler.role, worker.role) == ("scheduler", "worker")
    assert worker.concurrency in (7, 64)
    assert worker.pid > 0
    assert worker.seen >= worker.since > 0


async def test_members_vanish_when_they_stop() -> None:
    rabbit, redis = shared_rabbitmq(), shared_redis()
    vhost, db = rabbit.add_vhost(), next(_databases) % 14 + 1
    redis.call_in(db, "FLUSHDB")
    settings = Settings(broker_url=rabbit.url(vhost), state_url=f"{redis.url}/{db}", grace=5)
    stop = asyncio.Event()
    try:
        async with Remote.open(settings, REGISTRY) as runtime, asyncio.timeout(20):
            working = asyncio.create_task(run_worker(settings, REGISTRY, stop.wait()))
            while not (members := await runtime.members()):
                await asyncio.sleep(0.05)
            assert members[0].queues == ("workflow.execution", "workflow.timeout.process")
            stop.set()
            await working
            assert await runtime.members() == []
    finally:
        rabbit.delete_vhost(vhost)
