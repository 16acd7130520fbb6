"""Redrive and fork of what shares variables: they are what they were, and no more than that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rune.engine.seeding import sow
from rune.formats.document import read
from rune.history.executions import Execution
from rune.master.standing import Wish
from tests.conformance.flows import flow, node
from tests.master.mending import Mending, mending
from tests.playbooks.diamond import DIAMOND
from tests.playbooks.playing import whole

ORDERS = range(8)
"""Ways in which what is to be done may come."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Mending]:
    async with mending(tmp_path) as made:
        yield made


async def found(rig: Mending, execution: Execution, node: str) -> dict[str, Any]:
    """The variables that a node found."""
    shown: dict[str, Any] = (await rig.context(execution.id))[f"${node}"]["found"]
    return shown


CHAIN = flow(
    [node("a", "setter", sets={"x": 1, "y": "é"}), node("b", "boom", mends=True), node("c", "setter")],
    "a > b > c",
)


async def test_what_a_step_set_that_stands_is_set(rig: Mending) -> None:
    failed = await rig.first(CHAIN)
    rig.world.broken = False
    again = await rig.again(failed)
    assert await found(rig, again, "c") == {"x": 1, "y": "é"}
    assert set(rig.world.done.values()) == {1}
    await rig.finished(again.id)


OVERLAPPING = flow(
    [
        node("one", "setter", sets={"x": "one", "one": 1}),
        node("later", "wait", amount=10),
        node("two", "setter", sets={"x": "two", "two": 2}),
        node("m", "merge"),
        node("b", "boom", mends=True),
        node("three", "setter", sets={"x": "three"}),
        node("end", "setter"),
    ],
    "one > m",
    "later > two > m > b > three > end",
)
"""Of `one` and `two`, which have nothing to do with each other, `two` was later."""


@pytest.mark.parametrize("seed", ORDERS)
async def test_who_was_last_has_the_say_again(tmp_path: Path, seed: int) -> None:
    async with mending(tmp_path, seed=seed, duplicates=0.3, at_once=3) as rig:
        failed = await rig.first(OVERLAPPING)
        assert failed.status == "halted"
        # What is redriven twice is as what is redriven once.
        again = await rig.again(failed)
        assert again.status == "halted"
        rig.world.broken = False
        last = await rig.again(again)
        assert await found(rig, last, "three") == {"x": "two", "one": 1, "two": 2}
        assert await found(rig, last, "end") == {"x": "three", "one": 1, "two": 2}
        forked = await rig.again(last, Wish(fork="end"))
        assert await found(rig, forked, "end") == {"x": "three", "one": 1, "two": 2}
        without = await rig.again(forked, Wish(fork="three"))
        assert await found(rig, without, "three") == {"x": "two", "one": 1, "two": 2}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("redriven", [False, True])
async def test_a_crash_changes_nothing_of_that(tmp_path: Path, when: str, redriven: bool) -> None:
    call = calls = 0
    while call <= calls:
        call += 2
        async with mending(tmp_path / str(call)) as rig:
            crashes = getattr(rig.faults, when)
            if not redriven:
                crashes.add(call)
            failed = await rig.first(OVERLAPPING)
            rig.world.broken = False
            before = rig.faults.calls
            if redriven:
                crashes.add(before + call)
            again = await rig.again(failed)
            calls = rig.faults.calls - before if redriven else before
            where = f"crashed {when} call {call} of {calls}"
            # Who was last there, may be another after a crash.
            assert await found(rig, again, "three") == rig.variables[failed.id], where
            assert rig.variables[again.id] == {"x": "three", "one": 1, "two": 2}, where


APART = flow(
    [
        node("config", "setter", sets={"url": "there"}),
        node("late", "wait", amount=10),
        node("b", "setter", when=True, mends=True),
    ],
    "late > b",
)
"""When `b` failed, `config` had long been there."""


async def test_what_was_there_when_a_step_failed_is_there_when_it_runs_again(rig: Mending) -> None:
    failed = await rig.first(APART)
    assert failed.status == "halted"
    rig.world.broken = False
    rig.ahead = "late"
    again = await rig.again(failed)
    assert await found(rig, again, "b") == {"url": "there"}


async def test_what_was_not_come_to_when_it_failed_again_stands_all_the_same(rig: Mending) -> None:
    failed = await rig.first(APART)
    rig.ahead = "late"
    again = failed
    for _ in range(2):
        again = await rig.again(again)
        # It failed before anything else was done.
        assert again.status == "halted"
        assert {step.node_id for step in await rig.history.steps.scan(again.id)} == {"late", "b"}
    rig.world.broken = False
    last = await rig.again(again)
    assert await found(rig, last, "b") == {"url": "there"}
    assert [count for (node, _), count in rig.world.done.items() if node == "config"] == [1]


async def test_what_is_sown_again_does_not_set_back_what_was_set_since(rig: Mending) -> None:
    failed = await rig.first(
        flow(
            [
                node("a", "setter", sets={"x": 1}),
                node("b", "setter", sets={"x": 2}, when=True, mends=True),
                node("w", "wait", amount=100),
                node("c", "setter"),
            ],
            "a > b > w > c",
        )
    )
    rig.world.broken = False
    prepared = await rig.prepared(failed)
    execution = await rig.launch(prepared)
    await rig.run(timers=False)
    # Whoever started it died before that was known, and another does so again.
    await sow(rig.state, execution.id, rig.redriving.seeds_of(execution, prepared.flow))
    ended = await rig.ended(execution.id)
    assert await found(rig, ended, "b") == {"x": 1}
    assert await found(rig, ended, "c") == {"x": 2}


async def test_a_fork_knows_only_what_lies_before(rig: Mending) -> None:
    rig.world.broken = False
    chain = flow(
        [node(id, "setter", sets={"x": id, id: True}) for id in "abc"],
        "a > b > c",
    )
    first = await rig.first(chain)
    assert await found(rig, first, "c") == {"x": "b", "a": True, "b": True}
    forked = await rig.again(first, Wish(fork="b"))
    assert await found(rig, forked, "b") == {"x": "a", "a": True}
    assert await found(rig, forked, "c") == {"x": "b", "a": True, "b": True}


DEALT_WITH = flow(
    [
        node("a", "setter", when=True, mends=True, sets={"a": 1}, error={"type": "branch"}),
        node("good", "setter"),
        node("bad", "setter", sets={"mode": "degraded", "a": 0}),
        node("z", "boom", mends=True, when="{{ $trigger.bad | default(true) }}"),
        node("end", "setter"),
    ],
    "a > good",
    "a:error > bad > z > end",
)


async def test_what_a_step_set_that_is_not_come_to_is_not_set(rig: Mending) -> None:
    failed = await rig.first(DEALT_WITH)
    assert failed.status == "halted"
    rig.world.broken = False
    again = await rig.again(failed, Wish(node="a"))
    assert await found(rig, again, "good") == {"a": 1}


async def test_what_a_step_set_behind_one_that_runs_again_is_set_when_it_is_come_to(rig: Mending) -> None:
    failed = await rig.first(DEALT_WITH)
    again = await rig.again(failed, Wish(node="a"), input=Raw(b'{"bad": false}'))
    assert again.status == "completed"
    assert await found(rig, again, "end") == {"mode": "degraded", "a": 0}
    # It stands, and its turn is told: so it does in what is made of this one.
    last = await rig.again(again, Wish(fork="end"))
    assert await found(rig, last, "end") == {"mode": "degraded", "a": 0}
    assert [count for (node, _), count in rig.world.done.items() if node == "bad"] == [1]


@pytest.mark.parametrize("size", [2_000, 100_000])
async def test_large_variables_are_handed_on(rig: Mending, size: int) -> None:
    large = flow(
        [node("a", "setter", sets={"x": "x" * size}), node("b", "boom", mends=True), node("c", "setter")],
        "a > b > c",
    )
    failed = await rig.first(large)
    again = await rig.again(failed)
    rig.world.broken = False
    last = await rig.again(again)
    assert await found(rig, last, "c") == {"x": "x" * size}
    assert [count for (node, _), count in rig.world.done.items() if node == "a"] == [1]
    sent = [status.sets for status in rig.statuses if status.sets is not None]
    assert all((sets.ref is None) == (size < 64 * 1024) for sets in sent)


async def test_a_step_whose_variables_are_no_more_runs_again_and_that_is_said(rig: Mending) -> None:
    failed = await rig.first(
        flow(
            [node("a", "setter", sets={"x": "x" * 2000}), node("b", "boom", mends=True), node("c", "setter")],
            "a > b > c",
        )
    )
    await rig.history.database.write(("DELETE FROM history_value", [()]))
    rig.world.broken = False
    prepared = await rig.prepared(failed)
    assert [node for _, node in prepared.again] == ["a"]
    await rig.launch(prepared)
    again = await rig.ended(prepared.new.id)
    assert await found(rig, again, "c") == {"x": "x" * 2000}


async def test_a_history_that_does_not_know_of_variables_is_redriven_all_the_same(rig: Mending) -> None:
    failed = await rig.first(CHAIN)
    await rig.history.database.write(("UPDATE history_step SET sets = NULL, turn = NULL", [()]))
    rig.world.broken = False
    again = await rig.again(failed)
    assert (again.status, await found(rig, again, "c")) == ("completed", {})


# --- playbooks ---------------------------------------------------------------------------------------------


async def told(rig: Mending, execution: Execution) -> dict[str, list[tuple[str, bool]]]:
    """What became of the steps of each node, and whether that was reused."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for step in await rig.history.steps.scan(execution.id):
        details = step.details or {}
        found.setdefault(step.node_id, []).append((details.get("event", ""), "reused" in details))
    return found


def playbook(text: str) -> dict[str, Any]:
    document, problems = read(whole(text), "playbook.yaml")
    assert not problems
    return document.value


LARGER = DIAMOND.replace(
    "{kind: noop, eval: [{else: {do: continue, set_ctx: {seen",
    ("{kind: python, code: \"result = 'x' * 2000\", eval: [{else: {do: continue, set_ctx: {seen"),
)
COUNTING = """
workload: {flag: ""}
workflow:
  - step: count
    tool:
      - look:
          kind: python
          args: {n: "{{ ctx.n | default(0) }}", flag: "{{ workload.flag }}"}
          code: |
            import os
            assert n < 2 or os.path.exists(flag)
            result = n + 1
      - note: {kind: noop, eval: [{else: {do: continue, set_ctx: {n: "{{ results.look }}"}}}]}
    next: [{step: count, when: "{{ event.name == 'step.done' and ctx.n < 4 }}"}]
"""


@pytest.mark.parametrize("then", ["left", "right"])
async def test_tokens_that_stand_behind_a_step_that_runs_again_meet_as_well(
    tmp_path: Path, then: str
) -> None:
    flag = tmp_path / "flag"
    async with mending(tmp_path) as rig:
        rig.ahead = "left"
        failed = await rig.first(playbook(LARGER), {"flag": str(flag)})
        await rig.history.database.write(("DELETE FROM history_value", [()]))
        flag.touch()
        rig.ahead = then
        again = await rig.again(failed)
        verdict = (await rig.context(again.id))["$~verdict"]
        assert verdict["ctx"] == {"seen": ["begin"], "left": 1, "right": 2, "sum": 3}
        events = await told(rig, again)
        assert events["begin"] == [("step.done", False)]
        assert events["left"] == events["right"] == [("step.done", True)]
        # What came too early then may be the one to come later now.
        assert ("step.skipped", True) not in events["join"]


async def test_a_cycle_goes_on_counting(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async with mending(tmp_path) as rig:
        failed = await rig.first(playbook(COUNTING), {"flag": str(flag)})
        assert failed.status == "failed"
        flag.touch()
        again = await rig.again(failed)
        assert (await rig.context(again.id))["$~verdict"]["ctx"] == {"n": 4}
        assert (
            sorted((await told(rig, again))["count"])
            == [("step.done", False)] * 2 + [("step.done", True)] * 2
        )


@pytest.mark.parametrize("then", ["left", "right"])
async def test_tokens_that_stand_meet_at_a_join_that_runs_again(tmp_path: Path, then: str) -> None:
    flag = tmp_path / "flag"
    async with mending(tmp_path) as rig:
        rig.ahead = "left"
        failed = await rig.first(playbook(DIAMOND), {"flag": str(flag)})
        assert failed.status == "failed"
        flag.touch()
        rig.ahead = then
        again = await rig.again(failed)
        assert again.status == "completed"
        verdict = (await rig.context(again.id))["$~verdict"]
        assert verdict["ctx"] == {"seen": ["begin"], "left": 1, "right": 2, "sum": 3}
        events = await told(rig, again)
        assert events["begin"] == events["left"] == events["right"] == [("step.done", True)]
        # The token that came too early then is too early for ever: the join runs once.
        assert sorted(events["join"]) == [("step.done", False), ("step.skipped", True)]
