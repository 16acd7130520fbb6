"""Waits and time-outs, on a clock that jumps: a month takes no time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.conformance.backends import FLEET
from tests.conformance.extent import CHAOS
from tests.conformance.harness import Rig, flow, node

DAY = 24 * 3600.0


# --- waits ---


@pytest.mark.parametrize(
    ("amount", "unit", "seconds"),
    [(2, "seconds", 2), (3, "minutes", 180), (2, "hours", 7200), (30, "days", 30 * DAY)],
)
async def test_wait_for_an_interval(rig: Rig, amount: int, unit: str, seconds: float) -> None:
    began = rig.clock.now
    definition = flow(
        [node("w", "wait", amount=amount, unit=unit), node("next", of="$w.resume_at")], "w > next"
    )
    status, context = await rig.result(definition)
    assert status == "completed"
    assert rig.clock.now == pytest.approx(began + seconds, abs=1)
    resumed = datetime.fromisoformat(context["$next"]).timestamp()
    assert resumed == pytest.approx(began + seconds, abs=1)


async def test_wait_until_a_time(rig: Rig) -> None:
    until = datetime.fromtimestamp(rig.clock.now + 1000, UTC).isoformat()
    await rig.result(flow([node("w", "wait", resume="until", until=until)]))
    assert rig.clock.now == pytest.approx(datetime.fromisoformat(until).timestamp(), abs=1)


async def test_wait_until_a_time_that_has_passed_goes_on_at_once(rig: Rig) -> None:
    began = rig.clock.now
    status, _ = await rig.result(
        flow([node("w", "wait", resume="until", until="2001-01-01T00:00:00Z"), node("n")], "w > n")
    )
    assert status == "completed"
    assert rig.clock.now - began < 2


async def test_a_wait_that_is_the_last_node_ends_the_execution(rig: Rig) -> None:
    """RFC 006 §6.3."""
    status, context = await rig.result(flow([node("w", "wait", amount=1, unit="days")]))
    assert status == "completed"
    assert context["$w"].keys() >= {"resume_at", "timer_id"}


async def test_while_it_waits_nothing_is_in_the_queue(rig: Rig) -> None:
    execution = await rig.start(flow([node("w", "wait", amount=1), node("n")], "w > n"))
    await rig.run(timers=False)
    assert rig.backend.queue() == 0
    assert execution in await rig.backend.state.live()


async def test_a_waiting_item_does_not_hold_the_others_up(rig: Rig) -> None:
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("w", "wait", amount="{{ $item * 1000 }}"),
            node("b", "effect", of="$item"),
            node("g", "aggregator", collect="$item"),
        ],
        "s > w > b > g",
    )
    _, context = await rig.result(definition, [5, 1, 3])
    assert rig.world.saw["b"] == [1, 3, 5]
    assert context["$g"]["aggregated"] == [5, 1, 3]


async def test_a_wake_up_that_comes_twice_goes_on_once(rigged: Any) -> None:
    async with rigged(duplicates=1.0, at_once=3) as rig:
        definition = flow(
            [node("w", "wait"), node("a", "effect", of=1), node("b", "effect", of=2)], "w > a", "w > b"
        )
        status, _ = await rig.result(definition)
        assert status == "completed"
        assert rig.world.runs == {"a": 1, "b": 1}


async def test_the_first_resume_time_of_a_step_wins(rig: Rig) -> None:
    began = rig.clock.now
    execution = await rig.start(flow([node("w", "wait", amount=100), node("n")], "w > n"))
    await rig.fill()
    first = rig.pick("w")
    await rig.publish(first.task)
    await rig.handle(first)
    rig.clock.now += 50
    await rig.run()
    await rig.finished(execution)
    assert rig.clock.now == pytest.approx(began + 100, abs=1)


async def test_many_timers_at_once(rig: Rig, backend: str) -> None:
    """FACTS: poll_timers.lua failed at 8,000 due timers."""
    many = 8100 if CHAOS or backend in ("redis", FLEET) else 1000
    definition = flow(
        [
            node("s", "split", source={"range": many}),
            node("w", "wait", amount=60),
            node("g", "aggregator", reduce="count"),
        ],
        "s > w > g",
    )
    rig.shuffle = False
    _, context = await rig.result(definition)
    assert context["$g"]["reduced"] == many


async def test_a_scheduler_that_dies_after_claiming_loses_no_timer(inside: Any) -> None:
    async with inside() as rig:
        execution = await rig.start(flow([node("w", "wait"), node("n", "effect", of=1)], "w > n"))
        await rig.run(timers=False)
        rig.faults.after.add(rig.faults.calls + 1)  # claim
        await rig.run()
        assert rig.crashes == 1
        assert (await rig.finished(execution)).status == "completed"
        assert rig.world.runs["n"] == 1


# --- time-outs ---


def late_merge(wait: float, **merge: Any) -> dict[str, Any]:
    error = merge.pop("error", None)
    made = node("m", "merge", **merge)
    if error:
        made["error"] = {"type": error}
    nodes = [
        node("fast", of="fast"),
        node("w", "wait", amount=wait),
        node("slow", of="slow"),
        made,
        node("next", "effect", of="{{ $m | default(null) }}"),
    ]
    ways = ["fast > m > next", "w > slow > m"]
    if error == "branch":
        nodes.append(node("saved", of="$error.code"))
        ways.append("m:error > saved")
    return flow(nodes, *ways)


async def test_an_explicit_timeout_of_a_merge_counts_in_full(calm: Rig) -> None:
    """A sleeping branch does not suspend it; the execution fails (RFC 005 §5.3)."""
    began = calm.clock.now
    status, _ = await calm.result(late_merge(1000, timeout=60))
    assert (status, calm.completions[0].error.code) == ("failed", "MERGE_TIMEOUT")
    assert calm.completions[0].error.node == "m"
    ended = datetime.fromisoformat(calm.completions[0].completed_at).timestamp()
    assert ended == pytest.approx(began + 60, abs=1)
    assert calm.told("m")[-1] == "failed"


@pytest.mark.parametrize("policy", ["ignore", "branch"])
async def test_after_a_timeout_the_error_policy_decides_and_late_arrivals_are_dropped(
    calm: Rig, policy: str
) -> None:
    status, context = await calm.result(late_merge(1000, timeout=60, error=policy))
    assert status == "completed"
    if policy == "ignore":
        assert [seen["error"]["code"] for seen in calm.world.saw["next"]] == ["MERGE_TIMEOUT"]
    else:
        assert context["$saved"] == "MERGE_TIMEOUT"
        assert calm.world.runs["next"] == 0
    assert calm.told("slow")[-1] == "success", "the late branch came, and ended there"


async def test_a_timeout_that_is_not_reached_leaves_no_timer(rig: Rig) -> None:
    began = rig.clock.now
    status, context = await rig.result(late_merge(10, timeout=60))
    assert (status, context["$m"]) == ("completed", {"merged": ["fast", "slow"]})
    assert rig.clock.now - began < 12


async def test_a_short_timeout_behind_a_long_one(rig: Rig) -> None:
    """FACTS: in one TTL queue a message of 0.5 s behind one of 6 s left at 6 s."""
    long = await rig.start(late_merge(9000, timeout=6000))
    await rig.run(timers=False)
    short = await rig.start(late_merge(9000, timeout=5))
    began = rig.clock.now
    await rig.run()
    ends = {}
    for execution in (short, long):
        completion = await rig.finished(execution)
        ends[execution] = datetime.fromisoformat(completion.completed_at).timestamp() - began
    assert ends[short] == pytest.approx(5, abs=1)
    assert ends[long] == pytest.approx(6000, abs=1)


@pytest.mark.parametrize("days", [1, 3])
async def test_the_default_timeout_never_breaks_a_long_wait(rig: Rig, days: int) -> None:
    """FACTS: `expected` expired after 24 h, so a wait of days inside a split broke the barrier."""
    definition = flow(
        [
            node("s", "split", input_array="$trigger"),
            node("w", "wait", amount=days, unit="days"),
            node("g", "aggregator", collect="$item"),
        ],
        "s > w > g",
    )
    status, context = await rig.result(definition, [1, 2])
    assert (status, context["$g"]["aggregated"]) == ("completed", [1, 2])


async def test_the_default_timeout_of_a_merge_is_suspended_by_a_sleeping_branch(rig: Rig) -> None:
    status, context = await rig.result(late_merge(5000))
    assert (status, context["$m"]) == ("completed", {"merged": ["fast", "slow"]})


async def test_the_default_timeout_counts_from_the_last_progress(rigged: Any) -> None:
    """Each node takes its time; together they take longer than the default."""
    async with rigged(at_once=1) as rig:
        nodes = [node("fast"), *(node(f"e{i}", "effect", of=i) for i in range(5)), node("m", "merge")]
        execution = await rig.start(flow(nodes, "fast > m", "e0 > e1 > e2 > e3 > e4 > m"))
        await rig.handle_node("fast")
        await rig.handle_node("m")
        for i in range(5):
            rig.clock.now += 200
            await rig.ring()
            await rig.handle_node(f"e{i}")
        await rig.run()
        assert (await rig.finished(execution)).status == "completed"


async def test_the_default_timeout_ends_what_hangs(rig: Rig) -> None:
    """A branch that was lost for good (its message deleted by hand) does not hang the execution for ever."""
    execution = await rig.start(flow([node("a"), node("b"), node("m", "merge")], "a > m", "b > m"))
    await rig.fill()
    lost = rig.pick("b")
    await rig.drop(lost)
    began = rig.clock.now
    await rig.run()
    completion = await rig.finished(execution)
    assert (completion.status, completion.error.code) == ("failed", "MERGE_TIMEOUT")
    assert 299 <= rig.clock.now - began <= 700


def slow_items(**gather: Any) -> dict[str, Any]:
    error = gather.pop("error", None)
    made = node("g", "aggregator", **gather)
    if error:
        made["error"] = {"type": error}
    nodes = [
        node("s", "split", input_array="$trigger"),
        node("w", "wait", amount="$item"),
        node("b", "effect", of="$item"),
        made,
        node("next", "effect", of="{{ $g.error.code | default(null) }}"),
    ]
    return flow(nodes, "s > w > b > g > next")


async def test_an_explicit_timeout_of_an_aggregator_counts_from_the_splits_start(rig: Rig) -> None:
    began = rig.clock.now
    status, _ = await rig.result(slow_items(timeout=100), [10, 1000])
    assert (status, rig.completions[0].error.code) == ("failed", "AGGREGATOR_TIMEOUT")
    ended = datetime.fromisoformat(rig.completions[0].completed_at).timestamp()
    assert ended == pytest.approx(began + 100, abs=1)


async def test_after_an_aggregators_timeout_under_ignore_late_items_are_dropped(rig: Rig) -> None:
    status, _ = await rig.result(slow_items(timeout=100, error="ignore"), [10, 1000])
    assert status == "completed"
    assert rig.world.saw["next"] == ["AGGREGATOR_TIMEOUT"]
    assert rig.world.saw["b"] == [10], "item 1 was dropped when met"


@pytest.mark.parametrize("seed", range(5))
async def test_a_timeout_and_the_last_arrival_at_the_same_time_open_it_once(rigged: Any, seed: int) -> None:
    async with rigged(seed=seed, duplicates=0.5, at_once=4) as rig:
        status, _ = await rig.result(slow_items(timeout=50, error="ignore"), [10, 50])
        assert status == "completed"
        assert rig.world.runs["next"] == 1
