"""What a node sees of the world while it runs, and what it may not let out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rune.core.errors import ErrorInfo, NodeError
from rune.core.expressions import compile_expression
from rune.core.node import Gathered, Role, StepContext
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Outcome, Sleep, Source
from rune.core.workflow import Retry
from rune.engine.sealing import decode_outcome
from tests.core.graphs import Plain, frame, plain, raw
from tests.engine.bench import Bench
from tests.engine.doing import Rig, attempt, doing

# --- secrets ---


async def leak(outcome: Callable[[str], Any]) -> bytes:
    """What is kept of an outcome in which a node gives its secret away."""

    async def body(context: StepContext) -> Any:
        secret = (await context.credential())["password"]
        made = outcome(secret)
        if isinstance(made, Exception):
            raise made
        return made

    return msgspec.json.encode((await attempt(body, credentials="mail")).outcome)


@pytest.mark.parametrize(
    "outcome",
    [
        lambda secret: Done({"echo": f"Bearer {secret}"}),
        lambda secret: Sleep(None, {"echo": secret}),
        lambda secret: NodeError(f"refused {secret}", "REFUSED", {"sent": [secret]}),
        lambda secret: ValueError(secret),
        lambda secret: Failed(ErrorInfo(f"refused {secret}", "REFUSED", {"sent": secret})),
    ],
    ids=["done", "sleep", "node error", "exception", "failed"],
)
async def test_secrets_are_masked_in_whatever_leaves_the_node(outcome: Any) -> None:
    kept = await leak(outcome)
    assert b"***" in kept
    assert b"hunter2" not in kept


async def test_masking_does_not_break_what_it_masks() -> None:
    rig = Rig(doing(lambda context: _numbers(context)), credentials="pin")
    rig.bench = Bench("a", credentials={"pin": {"pin": "1234"}})
    made = await rig.run()
    assert isinstance(made.outcome, Done)
    assert plain(made.outcome.output)["longer"] == 912345


async def _numbers(context: StepContext) -> Outcome:
    await context.credential()
    return Done({"pin": 1234, "longer": 912345})


async def test_secrets_are_masked_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def body(context: StepContext) -> Outcome:
        secret = (await context.credential())["password"]
        context.log("warning", f"using {secret}")
        return Done(1)

    with caplog.at_level(logging.INFO, "rune.nodes"):
        await attempt(body, credentials="mail")
    (record,) = caplog.records
    assert (record.getMessage(), record.levelname) == ("A: using ***", "WARNING")


async def test_a_node_without_credentials_gets_none() -> None:
    async def body(context: StepContext) -> Outcome:
        return Done(await context.credential())

    assert (await attempt(body)).outcome == Done(raw({}))


# --- what a node sees ---


async def test_a_node_sees_its_place_in_the_world() -> None:
    async def body(context: StepContext) -> Outcome:
        return Done(
            {
                "ids": [
                    context.workflow_id,
                    context.execution_id,
                    context.node_id,
                    context.node_name,
                    context.step,
                ],
                "attempt": [context.attempt, context.last_attempt],
                "now": context.now(),
                "previous": context.previous(),
                "index": context.evaluate(compile_expression("$index + 1")),
                "over": context.evaluate(compile_expression("$x ~ $y"), {"$x": "over", "$index": 0}),
                "gathered": context.gathered,
            }
        )

    rig = Rig(doing(body), retry=Retry(2))
    at = rig.step({"$trigger": "t", "$x": "x", "$y": "y"}, attempt=2, lineage=(frame("s", 4),))
    made = await rig.run(at)
    assert isinstance(made.outcome, Done)
    assert plain(made.outcome.output) == {
        "ids": ["wf", "exec", "a", "A", "step1"],
        "attempt": [2, True],
        "now": rig.bench.clock.now,
        "previous": "t",
        "index": 5,
        "over": "overy",
        "gathered": None,
    }


async def test_a_service_is_made_once_and_closed() -> None:
    class Service:
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    made: list[Service] = []

    def make() -> Service:
        made.append(Service())
        return made[-1]

    runner = Bench("a", services={"pool": make}).runner
    assert runner.service("pool") is runner.service("pool")
    await runner.close()
    await runner.close()
    assert [service.closed for service in made] == [1]
    assert runner.service("pool") is not made[0]


async def test_stored_values_are_at_hand_for_each_branch_of_a_batch() -> None:
    rig = Rig(Plain, parameters={"of": "$x"})
    values = rig.bench.engine.values
    contexts = []
    for letter in "ab":
        context = rig.step({"$x": letter * 20_000}).branch.context
        contexts.append(await values.fold("exec", context))
    steps = [
        msgspec.structs.replace(at, branch=msgspec.structs.replace(at.branch, context=context))
        for at, context in zip([rig.step(), rig.step()], contexts, strict=True)
    ]
    made = await rig.run_pure(*steps)
    assert [attempt.outcome for attempt in made] == [Done(raw(letter * 20_000)) for letter in "ab"]


async def test_one_failing_step_of_a_batch_leaves_the_others_alone() -> None:
    rig = Rig(Plain, parameters={"of": "$x.y"})
    made = await rig.run_pure(rig.step({"$x": {"y": 1}}), rig.step({"$x": {}}), rig.step({"$x": {"y": 3}}))
    assert [type(attempt.outcome) for attempt in made] == [Done, Failed, Done]


async def test_a_join_sees_what_was_gathered() -> None:
    async def body(context: StepContext) -> Outcome:
        assert context.gathered is not None
        return Done(context.gathered.results)

    rig = Rig(doing(body, role=Role.MERGE, pure=True))
    (made,) = await rig.run_pure(gathered=Gathered(raw([1, 2])))
    assert made.outcome == Done(raw([1, 2]))


@pytest.mark.parametrize(
    ("role", "outcome"),
    [
        (Role.SPLIT, FanOut(Source(items=[1, {"x": 2}]), labels=["a", "b"])),
        (Role.GATHER, Arrive(raw({"x": 1}), (1, 2.5))),
        (Role.MERGE, Join()),
    ],
)
async def test_splits_and_joins_have_outcomes_of_their_own(role: Role, outcome: Outcome) -> None:
    async def body(context: StepContext) -> Outcome:
        return outcome

    (made,) = await Rig(doing(body, role=role, pure=True)).run_pure()
    assert made.outcome == outcome
    assert decode_outcome(msgspec.json.encode(outcome)) == outcome
