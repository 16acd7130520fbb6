"""Running a node's own code: whatever it does becomes an outcome that can be kept and shown."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from rune.core.errors import EngineError, ErrorInfo, InfrastructureError, NodeError
from rune.core.node import StepContext
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Outcome, Sleep, Source
from rune.core.workflow import Retry
from rune.settings import Settings
from tests.core.graphs import raw
from tests.engine.doing import Rig, attempt, both, doing, failure

# --- what nodes return ---


@both
@pytest.mark.parametrize(
    ("returned", "sealed"),
    [
        (Done({"x": 1}), Done(raw({"x": 1}))),
        (Done(None, None), Done(raw(None), None)),
        (Done({"$json": 1}, "true", True), Done(raw({"$json": 1}), "true", True)),
        (Sleep(5.0, {"x": 1}), Sleep(5.0, raw({"x": 1}))),
        (Failed(ErrorInfo("no", "NO", node="a")), Failed(ErrorInfo("no", "NO", node="a"))),
    ],
)
async def test_an_outcome_is_sealed_as_json(pure: bool, returned: Outcome, sealed: Outcome) -> None:
    async def body(context: StepContext) -> Outcome:
        return returned

    assert (await attempt(body, pure=pure)).outcome == sealed


@both
@pytest.mark.parametrize("nonsense", [None, {"x": 1}, "done", Done, 5])
async def test_what_is_no_outcome_is_a_failure(pure: bool, nonsense: Any) -> None:
    async def body(context: StepContext) -> Any:
        return nonsense

    error = await failure(body, pure=pure)
    assert (error.code, error.message) == (
        "NODE_OUTCOME",
        f"returned {type(nonsense).__name__}, which is no Outcome",
    )


@both
@pytest.mark.parametrize(
    "outcome", [FanOut(Source(stop=2)), Arrive(1), Join()], ids=["fanout", "arrive", "join"]
)
async def test_only_splits_fan_out_and_only_joins_join(pure: bool, outcome: Outcome) -> None:
    """The graph around a plain node has no place for the items, nor for the barrier."""

    async def body(context: StepContext) -> Outcome:
        return outcome

    assert (await failure(body, pure=pure)).code == "NODE_OUTCOME"


@both
@pytest.mark.parametrize("output", [math.nan, {"a": [math.inf]}, {1}, b"bytes", {1: 2}])
async def test_an_output_that_json_cannot_hold_is_a_failure(pure: bool, output: Any) -> None:
    async def body(context: StepContext) -> Outcome:
        return Done(output)

    assert (await failure(body, pure=pure)).code == "OUTPUT_NOT_JSON"


async def test_an_output_that_is_too_large_is_the_engines_failure() -> None:
    async def body(context: StepContext) -> Outcome:
        return Done("x" * 1000)

    made = await attempt(body, settings=Settings(max_value=1000))
    assert isinstance(made.outcome, Failed)
    assert (made.outcome.error.code, made.outcome.engine) == ("VALUE_TOO_LARGE", True)


async def test_a_pure_node_that_waits_is_told_so() -> None:
    async def body(context: StepContext) -> Outcome:
        await asyncio.sleep(0)
        return Done(1)

    assert (await failure(body, pure=True)).code == "NODE_NOT_PURE"


# --- what nodes raise ---


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@both
@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (NodeError("no such user", "USER_UNKNOWN", {"id": 5}), "USER_UNKNOWN", "no such user"),
        (NodeError("no"), "NODE_ERROR", "no"),
        (EngineError("too long", "LIMIT"), "LIMIT", "too long"),
        (ZeroDivisionError("division by zero"), "NODE_RAISED", "ZeroDivisionError: division by zero"),
        (KeyError("x"), "NODE_RAISED", "KeyError: 'x'"),
        (RecursionError("deep"), "NODE_RAISED", "RecursionError: deep"),
        (OSError(2, "No such file", "\udcff.txt"), "NODE_RAISED", "FileNotFoundError"),
        (NodeError("odd details", "ODD", {"at": {1, 2}, "of": object()}), "ODD", "odd details"),
        (NodeError("odd \udcff text", "ODD"), "ODD", "odd"),
        (Unprintable(), "NODE_RAISED", "Unprintable"),
        (asyncio.CancelledError(), "NODE_RAISED", "CancelledError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_node_raises_is_its_failure(
    pure: bool, raised: BaseException, code: str, message: str
) -> None:
    async def body(context: StepContext) -> Outcome:
        raise raised

    made = await attempt(body, pure=pure)
    assert isinstance(made.outcome, Failed)
    assert made.outcome.error.code == code
    assert message in made.outcome.error.message
    assert made.outcome.engine == isinstance(raised, EngineError)


async def test_an_outage_is_not_the_nodes_failure() -> None:
    async def body(context: StepContext) -> Outcome:
        raise InfrastructureError("redis is gone")

    with pytest.raises(InfrastructureError):
        await attempt(body)


async def test_a_cancelled_step_is_cancelled() -> None:
    entered = asyncio.Event()

    async def body(context: StepContext) -> Outcome:
        entered.set()
        await asyncio.Event().wait()
        return Done(1)

    running = asyncio.create_task(Rig(doing(body)).run())
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@both
async def test_a_parameter_that_cannot_be_had_names_itself(pure: bool) -> None:
    async def body(context: StepContext) -> Outcome:
        raise AssertionError("never runs")

    rig = Rig(doing(body, pure=pure), parameters={"of": "{{ $fetch.body }}"}, retry=Retry(3))
    made = (
        (await rig.run_pure(rig.step({"$fetched": 1})))[0]
        if pure
        else await rig.run(rig.step({"$fetched": 1}))
    )
    assert isinstance(made.outcome, Failed)
    assert "'of'" in made.outcome.error.message
    assert made.retry_in is None


# --- retries ---


@both
@pytest.mark.parametrize(
    ("error", "policy", "number", "rest"),
    [
        (NodeError("no"), None, 1, None),
        (NodeError("no"), Retry(3, 5.0, "linear"), 1, 5.0),
        (NodeError("no"), Retry(3, 5.0, "linear"), 2, 10.0),
        (NodeError("no"), Retry(3, 5.0, "linear"), 3, None),
        (ValueError("no"), Retry(2, 1.0), 1, 1.0),
    ],
)
async def test_a_failed_attempt_is_tried_again_as_the_node_says(
    pure: bool, error: Exception, policy: Retry | None, number: int, rest: float | None
) -> None:
    async def body(context: StepContext) -> Outcome:
        raise error

    rig = Rig(doing(body, pure=pure), retry=policy)
    at = rig.step(attempt=number)
    made = (await rig.run_pure(at))[0] if pure else await rig.run(at)
    assert made.retry_in == rest


@pytest.mark.parametrize(("retryable", "rest"), [(True, 2.0), (False, None)])
async def test_a_types_own_policy_is_for_errors_that_may_pass(retryable: bool, rest: float | None) -> None:
    async def body(context: StepContext) -> Outcome:
        assert not context.last_attempt
        raise NodeError("no", retryable=retryable)

    type = doing(body)
    type.retry_policy = lambda self: Retry(2, 2.0)  # type: ignore[method-assign]
    assert (await Rig(type).run()).retry_in == rest


# --- records, leases, starts ---


async def test_a_recorded_outcome_is_not_run_again() -> None:
    async def body(context: StepContext) -> Outcome:
        raise AssertionError("never runs")

    made = await Rig(doing(body)).run(record=msgspec.json.encode(Done({"x": 1}, "true")))
    assert (made.outcome, made.replayed) == (Done(raw({"x": 1}), "true"), True)


@pytest.mark.parametrize("fence", [1, 2, 3, 4])
async def test_the_third_start_of_a_step_fails(fence: int) -> None:
    ran = []

    async def body(context: StepContext) -> Outcome:
        ran.append(1)
        return Done(1)

    rig = Rig(doing(body), retry=Retry(5))
    made = await rig.run(rig.step(fence=fence))
    assert bool(ran) == (fence < 3)
    if fence >= 3:
        assert isinstance(made.outcome, Failed)
        assert (made.outcome.error.code, made.outcome.engine, made.retry_in) == ("WORKER_LOST", True, None)
        assert f"died {fence - 1} times" in made.outcome.error.message


async def test_a_lease_is_renewed_for_as_long_as_the_step_runs() -> None:
    renewed = asyncio.Event()

    async def body(context: StepContext) -> Outcome:
        await renewed.wait()
        return Done(1)

    rig = Rig(doing(body), settings=Settings(lease=0.004))
    at = rig.step(fence=1)
    await rig.bench.state.lease("exec", [(at.branch.step, ())], 1, 0.0)
    rig.bench.clock.now += 100

    async def let_go(name: str) -> None:
        if rig.bench.state.calls.count("renew") == 2:
            renewed.set()

    rig.bench.state.before = let_go
    assert (await rig.run(at)).outcome == Done(raw(1))
    row = rig.bench.state.rows.step("exec", at.branch.step)
    assert row.leased_until == rig.bench.clock.now + 0.004


async def test_without_a_lease_nothing_is_renewed() -> None:
    async def body(context: StepContext) -> Outcome:
        return Done(1)

    rig = Rig(doing(body))
    await rig.run()
    assert rig.bench.state.calls == []


async def test_no_more_steps_run_at_once_than_the_settings_say() -> None:
    inside, most = 0, 0
    entered, go = asyncio.Semaphore(0), asyncio.Event()

    async def body(context: StepContext) -> Outcome:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        entered.release()
        await go.wait()
        inside -= 1
        return Done(1)

    rig = Rig(doing(body), settings=Settings(concurrency=2))
    running = [asyncio.create_task(rig.run()) for _ in range(5)]
    await entered.acquire()
    await entered.acquire()
    go.set()
    await asyncio.gather(*running)
    assert most == 2
