"""Cancel, pause and resume; bad messages; steps that kill their worker."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rune.core.messages import Task
from rune.settings import Settings
from tests.conformance.harness import Rig, flow, node

CHAIN = flow(
    [node("a", "effect", of=1), node("w", "wait", amount=100), node("b", "effect", of=2)], "a > w > b"
)


def cancel(execution: str, reason: str = "enough") -> Task:
    """The message that cancels an execution."""
    return Task(
        workflow_id="-",
        execution_id=execution,
        current_node="",
        accumulated_context={},
        phase="cancel",
        details=msgspec.Raw(msgspec.json.encode(reason)),
        priority=10,
    )


# --- cancel ---


async def test_cancelled_while_it_waits(rigged: Any) -> None:
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(CHAIN)
        await rig.run(timers=False)
        await rig.publish(cancel(execution))
        await rig.run()
        completion = await rig.finished(execution)
        assert (completion.status, completion.reason) == ("halted", "enough")
        assert rig.world.runs == {"a": 1}


async def test_cancelled_before_it_has_begun(rig: Rig) -> None:
    execution = await rig.start(CHAIN)
    await rig.publish(cancel(execution))
    await rig.fill()
    await rig.handle(rig.pick("", phase="cancel"))
    await rig.run()
    assert (await rig.finished(execution)).status == "halted"
    assert not rig.world.runs


async def test_cancelled_when_it_has_ended_already(rig: Rig) -> None:
    execution = await rig.start(CHAIN)
    await rig.run()
    await rig.publish(cancel(execution))
    await rig.run()
    assert (await rig.finished(execution)).status == "completed"


async def test_cancelled_twice_with_a_crash_between(inside: Any) -> None:
    for crash in range(1, 5):
        async with inside() as rig:
            execution = await rig.start(CHAIN)
            await rig.run(timers=False)
            await rig.publish(cancel(execution))
            rig.faults.after.add(rig.faults.calls + crash)
            await rig.run()
            assert (await rig.finished(execution)).status == "halted"


async def test_cancelled_in_a_fan_out(rigged: Any) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("b", "effect", of="$item"),
            node("g", "aggregator"),
        ],
        "s > b > g",
    )
    async with rigged(duplicates=0.3) as rig:
        execution = await rig.start(definition, list(range(20)))
        await rig.run(until=lambda: rig.world.runs["b"] >= 5)
        await rig.publish(cancel(execution))
        await rig.run()
        assert (await rig.finished(execution)).status == "halted"


# --- pause ---


async def test_paused_nothing_further_starts_until_it_is_resumed(rigged: Any) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger", batch_size=1),
            node("b", "effect", of="$item"),
            node("g", "aggregator", collect="$item"),
        ],
        "s > b > g",
    )
    async with rigged(duplicates=0.5) as rig:
        execution = await rig.start(definition, [1, 2, 3, 4])
        await rig.handle_node("s")
        await rig.handle_node("b")
        await rig.pause(execution)
        await rig.run(timers=False)
        assert rig.world.runs["b"] == 1
        assert rig.backend.queue() == 0, "parked, and acknowledged"
        await rig.resume(execution)
        await rig.run()
        await rig.finished(execution)
        assert (await rig.context(execution))["$g"]["aggregated"] == [1, 2, 3, 4]
        assert sorted(rig.world.saw["b"]) == [1, 2, 3, 4]


async def test_what_several_were_told_to_publish_is_all_there_when_it_goes_on(calm: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger", max_concurrency=8, batch_size=1),
            node("b", of="$item"),
            node("g", "aggregator"),
        ],
        "s > b > g",
    )
    execution = await calm.start(definition, list(range(40)))
    await calm.handle_node("s")
    refills = 0
    while refills < 2:
        await calm.fill()
        at = next(i for i, delivery in enumerate(calm.inbox) if delivery.task.phase == "run")
        await calm.handle(calm.inbox.pop(at))
        await calm.fill()
        refills = sum(delivery.task.phase == "refill" for delivery in calm.inbox)
    await calm.pause(execution)
    await calm.run(timers=False)
    await calm.resume(execution)
    await calm.run()
    await calm.finished(execution)
    assert (await calm.context(execution))["$g"]["aggregated"] == list(range(40))


async def test_a_paused_execution_can_be_cancelled(rig: Rig) -> None:
    execution = await rig.start(CHAIN)
    await rig.pause(execution)
    await rig.run(timers=False)
    await rig.publish(cancel(execution))
    await rig.run()
    assert (await rig.finished(execution)).status == "halted"


async def test_a_batch_is_parked_whole(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger", batch_size=10),
            node("b", of="$item"),
            node("g", "aggregator"),
        ],
        "s > b > g",
    )
    execution = await rig.start(definition, list(range(25)))
    await rig.handle_node("s")
    await rig.pause(execution)
    await rig.run(timers=False)
    await rig.resume(execution)
    await rig.run()
    await rig.finished(execution)
    assert (await rig.context(execution))["$g"]["aggregated"] == list(range(25))


# --- trouble ---


async def test_an_unknown_node_is_dead_lettered_and_fails_the_execution(rig: Rig) -> None:
    execution = await rig.start_at(flow([node("a")]), "b", None)
    await rig.run()
    assert len(rig.dead_letters) == 1
    assert "'b'" in rig.dead_letters[0]
    completion = await rig.completion(execution)
    assert (completion.status, completion.error.code) == ("failed", "DEAD_LETTER")


async def test_a_message_without_a_definition(rig: Rig) -> None:
    execution = rig.name()
    message = {"workflow_id": "wf", "execution_id": execution, "current_node": "b"}
    await rig.publish({**message, "accumulated_context": {}})
    await rig.run()
    assert "workflow_definition" in rig.dead_letters[0]
    assert (await rig.completion(execution)).status == "failed"


async def test_an_unknown_type_fails_the_execution(rig: Rig) -> None:
    execution = await rig.start_at(flow([node("a", "nothing_like_it")]), "a", None)
    await rig.run()
    completion = await rig.completion(execution)
    assert completion.status == "failed"
    assert "nothing_like_it" in completion.error.message


async def test_a_dead_letter_in_an_item_fails_the_item_only(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger", batch_size=1),
            node("b", of="$item"),
            node("g", "aggregator"),
        ],
        "s > b > g",
    )
    execution = await rig.start(definition, [1, 2])
    await rig.handle_node("s")
    await rig.fill()
    spoilt = rig.pick("b")
    await rig.drop(spoilt)
    await rig.publish(msgspec.structs.replace(spoilt.task, current_node="gone"))
    await rig.run()
    assert len(rig.dead_letters) == 1
    assert (await rig.completion(execution)).status == "completed"
    context = await rig.context(execution)
    index = spoilt.task.lineage_stack[-1].item_index
    assert context["$g"]["aggregated"][index]["error"]["code"] == "DEAD_LETTER"
    assert context["$g"]["aggregated"][1 - index] == 2 - index


async def test_an_unexpected_error_is_tried_again_then_dead_lettered(
    inside: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with inside(settings=Settings(retry_delays=(0.0, 0.0, 0.0))) as rig:
        execution = await rig.start(flow([node("a")]))

        async def broken(delivery: Any) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(rig.engine, "handle", broken)
        rig.forgiving = True
        await rig.run()
        assert len(rig.unexpected) == 4
        assert len(rig.dead_letters) == 1
        assert "a bug" in rig.dead_letters[0]
        assert (await rig.completion(execution)).status == "failed"


# --- leases ---


async def test_a_duplicate_of_a_running_effect_does_not_run_it(rig: Rig) -> None:
    execution = await rig.start(flow([node("e", "effect", of=1, gate="g"), node("n")], "e > n"))
    await rig.fill()
    delivery = rig.pick("e")
    running = asyncio.ensure_future(rig.handle(delivery))
    await rig.world.entered["e"].wait()
    await rig.publish(delivery.task)
    await rig.handle_node("e")
    assert rig.world.runs["e"] == 1, "somebody else runs it: come back when their lease ends"
    rig.world.gate("g").set()
    await running
    await rig.run()
    assert (await rig.finished(execution)).status == "completed"
    assert rig.world.runs["e"] == 1


async def test_a_lost_worker_s_effect_is_run_again_under_the_same_key(rig: Rig) -> None:
    execution = await rig.start(flow([node("e", "effect", of=1, gate="g")]))
    running = asyncio.ensure_future(rig.run())
    await rig.world.entered["e"].wait()
    rig.kill()
    rig.world.gate("g").set()
    await running
    assert (await rig.finished(execution)).status == "completed"
    assert rig.world.runs["e"] == 2
    assert len(set(rig.world.keys["e"])) == 1


async def test_whoever_waits_for_a_lease_does_not_displace_a_later_attempt(rig: Rig) -> None:
    """A duplicate of attempt 1 waits for its lease; attempt 2 loses its worker and has to wait, too."""
    retry = {"attempts": 3, "delay": 10}
    execution = await rig.start(flow([node("e", "effect", of=1, fails=1, gate="g", retry=retry)]))
    await rig.fill()
    first = rig.pick("e")
    running = asyncio.ensure_future(rig.handle(first))
    await rig.world.entered["e"].wait()
    await rig.publish(first.task)
    await rig.handle_node("e")
    rig.world.gate("g").set()
    await running
    rig.world.gate("g").clear()
    rig.world.entered["e"].clear()
    running = asyncio.ensure_future(rig.run())
    await rig.world.entered["e"].wait()
    rig.kill()
    rig.world.gate("g").set()
    await running
    assert (await rig.finished(execution)).status == "completed"
    assert rig.world.attempts["e"] == [1, 2, 2]


async def test_the_step_that_kills_its_worker_fails_at_the_third_start(rig: Rig) -> None:
    execution = await rig.start(flow([node("e", "effect", of=1, gate="g"), node("n")], "e > n"))
    running = asyncio.ensure_future(rig.run())
    for start in (1, 2):
        await rig.world.entered["e"].wait()
        rig.world.entered["e"].clear()
        assert rig.world.runs["e"] == start
        rig.kill()
    await asyncio.wait_for(running, 20)
    completion = await rig.finished(execution)
    assert (completion.status, completion.error.code) == ("failed", "WORKER_LOST")
    assert rig.world.runs["e"] == 2


async def test_a_recorded_outcome_is_what_the_children_see(inside: Any) -> None:
    """A node that throws dice is run twice by a redelivery: the first throw counts."""
    definition = flow(
        [node("d", "dice"), node("a", of="$d.number"), node("b", of="$d.number")], "d > a", "d > b"
    )
    for crash in range(1, 12):
        for when in ("before", "after"):
            async with inside(settings=Settings(max_starts=100)) as rig:
                getattr(rig.faults, when).add(crash)
                _, context = await rig.result(definition)
                assert context["$a"] == context["$b"] == context["$d"]["number"]


async def test_concurrent_duplicates_of_a_dice_agree(rigged: Any) -> None:
    definition = flow(
        [node("d", "dice"), node("a", of="$d.number"), node("b", of="$d.number")], "d > a", "d > b"
    )
    for seed in range(10):
        async with rigged(seed=seed, duplicates=1.0, at_once=5) as rig:
            _, context = await rig.result(definition)
            assert context["$a"] == context["$b"] == context["$d"]["number"]


async def test_a_long_step_gives_its_delivery_back_and_lives_on_its_lease(rigged: Any) -> None:
    async with rigged(settings=Settings(hold=0.01)) as rig:
        execution = await rig.start(flow([node("e", "effect", of=1, gate="g"), node("n")], "e > n"))
        await rig.fill()
        running = asyncio.ensure_future(rig.handle(rig.pick("e")))
        await rig.world.entered["e"].wait()
        while rig.backend.queue():
            await asyncio.sleep(0.005)
        rig.world.gate("g").set()
        await running
        await rig.run()
        assert (await rig.finished(execution)).status == "completed"
        assert rig.world.runs["e"] == 1


# --- many executions ---


async def test_executions_do_not_mix(rigged: Any) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("l", of="$item"),
            node("r", "wait"),
            node("m", "merge"),
            node("g", "aggregator", collect="$item"),
        ],
        "s > l > m > g",
        "s > r > m",
    )
    async with rigged(duplicates=0.3, at_once=6) as rig:
        started = [await rig.start(definition, [i, i + 100, i + 200]) for i in range(10)]
        await rig.run()
        for i, execution in enumerate(started):
            await rig.finished(execution)
            assert (await rig.context(execution))["$g"]["aggregated"] == [i, i + 100, i + 200]


async def test_starting_the_same_execution_again_is_starting_it_once(rig: Rig) -> None:
    definition = flow([node("a", "effect", of=1), node("b", "effect", of=2)])
    same = rig.name()
    for _ in range(3):
        await rig.start(definition, execution=same)
    await rig.run()
    await rig.start(definition, execution=same)
    await rig.run()
    await rig.finished(same)
    assert rig.world.runs == {"a": 1, "b": 1}
