"""What is told becomes rows, whatever the order, however often."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.ids import content_hash, derive
from rune.core.messages import CompletionMessage, Frame, NodeStatusMessage, Sets
from rune.history import History, open_history
from rune.history.executions import NewExecution
from rune.history.items import Split
from tests.history.statuses import EXECUTION, arrival, completion, failure, item, status, taking


async def counts(history: History) -> dict[str, dict[str, int]]:
    """Steps by node and state, without zeros."""
    states = ("running", "waiting", "success", "failed", "stopped")
    return {
        node: {state: getattr(row, state) for state in states if getattr(row, state)}
        for node, row in (await history.executions.nodes(EXECUTION)).items()
    }


async def only_split(history: History) -> Split:
    """The one there is."""
    (split,) = await history.items.splits(EXECUTION)
    return split


async def states(history: History) -> str:
    """The states of all items of the one split, by their first letters."""
    runs = await history.items.runs(EXECUTION, "each")
    return "".join(state[0] * count for _, state, count in runs)


async def test_a_step_runs_and_succeeds(history: History) -> None:
    await history.executions.create(NewExecution(id=EXECUTION, definition="{}", name="mine"))
    await history.recording.record([status("a", at=1000.0)])
    assert await counts(history) == {"a": {"running": 1}}
    execution = await history.executions.get(EXECUTION)
    assert execution is not None
    assert (execution.status, execution.started_at, execution.name) == ("running", 1000.0, "mine")

    done = status("a", "success", 1001.5, duration_ms=1500, output={"n": 1}, port="true")
    await history.recording.record([done])
    assert await counts(history) == {"a": {"success": 1}}
    step = await history.steps.get(EXECUTION, "a")
    assert step is not None
    assert (step.started_at, step.ended_at, step.duration_ms, step.port) == (1000.0, 1001.5, 1500, "true")
    assert step.output is not None
    assert bytes(step.output) == b'{"n":1}'


async def test_what_is_told_twice_is_stored_and_logged_once(history: History) -> None:
    told = [status("a"), status("a", "success", 1001.0), arrival(0), taking()]
    first = await history.recording.record(told, [completion()])
    assert first.changed == first.ended == {EXECUTION}
    before = await history.executions.get(EXECUTION)
    again = await history.recording.record(told, [completion("failed")])
    assert (again.changed, again.ended) == (frozenset(), frozenset())
    assert await history.executions.get(EXECUTION) == before
    assert len((await history.events.list(EXECUTION)).items) == 4


async def test_what_comes_late_does_not_undo_what_is_known(history: History) -> None:
    await history.recording.record([status("a", "success", 1001.0)])
    await history.recording.record([status("a", at=1000.0)])
    await history.recording.record([status("b", attempt=2, at=1005.0)])
    await history.recording.record([status("b", attempt=1, at=1003.0)])
    assert await counts(history) == {"a": {"success": 1}, "b": {"running": 1}}
    b = await history.steps.get(EXECUTION, "b")
    assert b is not None
    assert (b.attempt, b.started_at) == (2, 1003.0)


async def test_a_step_that_is_tried_again(history: History) -> None:
    retry = failure("a", details={"retry_at": "2001-09-09T01:46:45.000Z", "attempt": 1}, duration_ms=7)
    await history.recording.record([status("a"), retry])
    assert await counts(history) == {"a": {"waiting": 1}}
    assert (await history.executions.nodes(EXECUTION))["a"].resume_at == 1_000_000_005.0
    await history.recording.record([status("a", "success", 1009.0, attempt=2)])
    step = await history.steps.get(EXECUTION, "a")
    assert step is not None
    assert (step.status, step.error) == ("success", None)
    (tried,) = step.attempts
    assert (tried.attempt, tried.duration_ms) == (1, 7)
    assert tried.error is not None
    assert tried.error.code == "BOOM"


async def test_a_wait_tells_when_it_goes_on(history: History) -> None:
    waiting = status("a", "waiting", details={"resume_at": "2001-09-09T01:46:40.000Z"})
    await history.recording.record([status("a"), waiting])
    assert await counts(history) == {"a": {"waiting": 1}}
    assert (await history.executions.nodes(EXECUTION))["a"].resume_at == 1_000_000_000.0


async def test_large_outputs_are_kept_apart(history: History) -> None:
    large = {"text": "x" * 5000}
    ref = Ref("f00", 100_000, "$b")
    told = [status("a", "success", output=large), status("b", "success", output_ref=ref)]
    await history.recording.record(told, (), {(EXECUTION, "f00"): b'"stored"'})
    a, b = await history.steps.get(EXECUTION, "a"), await history.steps.get(EXECUTION, "b")
    assert a is not None
    assert b is not None
    assert (a.output, a.output_hash) == (None, content_hash(msgspec.json.encode(large)))
    assert await history.values.get(EXECUTION, a.output_hash or "") == msgspec.json.encode(large)
    assert (b.output_hash, b.output_size) == ("f00", 100_000)
    assert await history.values.get(EXECUTION, "f00") == b'"stored"'
    assert await history.values.missing(EXECUTION, ["f00", "f01"]) == ["f01"]


async def test_what_steps_set_is_kept_with_its_turn(history: History) -> None:
    small, large = Raw(b'{"x":"\\u0000\xc3\xa9"}'), Raw(msgspec.json.encode({"x": "x" * 5000}))
    told = [
        status("a", "success", output=1, sets=Sets(3, small)),
        status("b", "failed", output=1, handled=True, sets=Sets(1, large)),
        status("c", "success", output=1, sets=Sets(2, ref=Ref("f00", 100_000))),
        status("d", "success", output=1),
    ]
    await history.recording.record(told, (), {(EXECUTION, "f00"): b'{"x":1}'})
    found = {step.step: step for step in await history.steps.scan(EXECUTION)}
    assert {id: step.turn for id, step in found.items()} == {"a": 3, "b": 1, "c": 2, "d": None}
    assert (found["a"].sets, found["a"].sets_hash) == (small, None)
    assert (found["b"].sets, found["b"].sets_hash) == (None, content_hash(bytes(large)))
    assert await history.values.get(EXECUTION, found["b"].sets_hash or "") == bytes(large)
    assert (found["c"].sets_hash, found["c"].sets_size) == ("f00", 100_000)
    assert found["d"].sets is None
    assert sorted(await history.steps.setters(EXECUTION)) == ["a", "b", "c"]
    assert await history.steps.setters("another") == []


async def test_the_end_settles_what_is_still_open(history: History) -> None:
    told = [status("a"), status("b", "waiting", details={"resume_at": None}), arrival(0), status("c:1")]
    open_item = status("c:1", lineage_stack=item(1))
    await history.recording.record([*told, open_item], [completion("halted", reason="cancelled")])
    execution = await history.executions.get(EXECUTION)
    assert execution is not None
    assert (execution.status, execution.reason, execution.duration_ms) == ("halted", "cancelled", 10_000)
    assert await counts(history) == {"a": {"stopped": 1}, "b": {"stopped": 1}, "c": {"stopped": 2}}
    assert await states(history) == "sss"
    split = await only_split(history)
    assert (split.succeeded, split.skipped, split.running, split.pending) == (1, 2, 0, 0)
    # What comes after the end finds its place, too.
    await history.recording.record([status("a", "success", 1009.0), status("d")])
    assert (await counts(history))["a"] == {"success": 1}
    assert (await counts(history))["d"] == {"stopped": 1}


async def test_the_result_with_values_behind_references(history: History) -> None:
    refs = (Ref("aa", 20, "$big"), Ref("bb", 30))
    values = {(EXECUTION, "aa"): b"[1,2]", (EXECUTION, "bb"): b'{"$x":1,"$y":2}'}
    await history.recording.record([], [completion(refs=refs, final_context={"$y": Raw(b"3")})], values)
    execution = await history.executions.get(EXECUTION)
    assert execution is not None
    result = {key: bytes(value) for key, value in (await history.values.result(execution)).items()}
    assert result == {"$big": b"[1,2]", "$x": b"1", "$y": b"3"}


async def test_an_execution_that_nobody_announced(history: History) -> None:
    await history.recording.record([status("a")], [completion(error=ErrorInfo("no", "NO"), state="failed")])
    execution = await history.executions.get(EXECUTION)
    assert execution is not None
    assert (execution.trigger, execution.workflow_id, execution.root) == ("wire", "wf", EXECUTION)
    assert execution.error == ErrorInfo("no", "NO")


# --- items ---


async def test_items_run_arrive_and_fail(history: History) -> None:
    told = [
        status("edit:0", lineage_stack=item(0, 4, label="first", key="k")),
        status("edit:1", lineage_stack=item(1, 4)),
        arrival(1, 4),
        failure("edit:2", lineage_stack=item(2, 4)),
    ]
    await history.recording.record(told)
    assert await states(history) == "rsfp"
    split = await only_split(history)
    assert (split.total, split.pending, split.running, split.succeeded, split.failed) == (4, 1, 1, 1, 1)
    page = await history.items.list(EXECUTION, "each", limit=1)
    assert (page.items[0].label, page.items[0].key, page.items[0].state) == ("first", "k", "running")
    (failures,) = await history.items.failures(EXECUTION, "each")
    assert (failures.node, failures.code, failures.count, failures.example) == ("edit", "BOOM", 1, 2)
    assert failures.error is not None
    assert failures.error.message == "BOOM happened"


async def test_a_failure_that_is_handled_or_tried_again_does_not_fail_the_item(history: History) -> None:
    handled = failure("edit:0", lineage_stack=item(0), handled=True)
    retried = failure("edit:1", lineage_stack=item(1), details={"retry_at": "2001-09-09T01:46:40.000Z"})
    await history.recording.record([handled, retried])
    assert await states(history) == "rrp"


async def test_an_aggregator_waits_as_one_step_and_then_succeeds(history: History) -> None:
    await history.recording.record([arrival(0), arrival(0, processed=1)])
    assert await counts(history) == {"all": {"waiting": 1}}
    (step,) = (await history.steps.list(EXECUTION)).items
    assert step.step == derive("each", "~gather")
    assert step.lineage == ()
    assert step.details == {"processed": 1, "total": 3, "failed": 0, "skipped": 0}
    await history.recording.record([taking(), taking("success", output={"count": 3})])
    assert await counts(history) == {"all": {"success": 1}}


async def test_when_a_split_closes_what_did_not_arrive_was_skipped(history: History) -> None:
    await history.recording.record([status("edit:0", lineage_stack=item(0)), arrival(1)])
    await history.recording.record([taking()])
    assert await states(history) == "sss"
    split = await only_split(history)
    assert (split.succeeded, split.skipped, split.pending, split.closed) == (1, 2, 0, True)
    item_2 = await history.items.get(EXECUTION, "each", 2)
    assert item_2 is not None
    assert item_2.state == "skipped"


async def test_arrivals_that_were_not_told_count_when_the_aggregator_missed_nobody(history: History) -> None:
    told = [status(f"edit:{i}", lineage_stack=item(i)) for i in range(3)]
    await history.recording.record([*told, arrival(2, processed=3)])
    await history.recording.record([taking()])
    assert (await only_split(history)).succeeded == 3


async def test_how_many_items_there_are_may_be_found_out_late(history: History) -> None:
    told = [status(f"edit:{i}", lineage_stack=lazy(i)) for i in range(3)]
    await history.recording.record([*told, msgspec.structs.replace(arrival(1), lineage_stack=lazy(1))])
    split = await only_split(history)
    assert (split.total, split.succeeded, split.running, split.pending) == (3, 1, 2, 0)
    await history.recording.record([status("edit:7", lineage_stack=item(7, 9))])
    split = await only_split(history)
    assert (split.total, split.running, split.pending) == (9, 3, 5)


async def test_how_many_items_there_were_is_told_at_the_latest_when_it_closes(history: History) -> None:
    told = [status(f"edit:{i}", lineage_stack=lazy(i)) for i in range(3)]
    await history.recording.record([*told, msgspec.structs.replace(arrival(1), lineage_stack=lazy(1))])
    await history.recording.record([taking(gathered=(3, 0))])
    split = await only_split(history)
    assert (split.total, split.succeeded, split.skipped, split.closed) == (3, 3, 0, True)


def lazy(index: int) -> tuple[Frame, ...]:
    """The lineage of an item of a split that does not know how many it has."""
    (frame,) = item(index)
    return (msgspec.structs.replace(frame, total_items=None),)


async def test_a_split_without_an_aggregator_succeeds_with_its_items(history: History) -> None:
    told = [status(f"edit:{i}", "success", lineage_stack=item(i)) for i in range(3)]
    close = status(derive("each", "~gather"), node_id="each", closes="each")
    await history.recording.record(told)
    assert (await only_split(history)).running == 3
    await history.recording.record([close])
    assert (await only_split(history)).succeeded == 3


async def test_steps_know_their_whole_lineage(history: History) -> None:
    outer = item(1, 2, label="outer")
    inner = (
        *outer,
        msgspec.structs.replace(outer[0], split_node_id="in", item_index=0, barrier="in", label=""),
    )
    await history.recording.record(
        [status("in", lineage_stack=outer), status("x", lineage_stack=inner), status("y")]
    )
    steps = (await history.steps.list(EXECUTION, scope=("in", 0))).items
    assert [(s.step, [(f.split_node_id, f.item_index, f.label) for f in s.lineage]) for s in steps] == [
        ("x", [("each", 1, "outer"), ("in", 0, "")])
    ]
    inner_split = next(s for s in await history.items.splits(EXECUTION) if s.node == "in")
    assert (inner_split.scope, inner_split.scope_item) == ("each", 1)
    everything = await history.steps.scan(EXECUTION, limit=2)
    everything = [*everything, *await history.steps.scan(EXECUTION, after=everything[-1])]
    assert sorted(step.step for step in everything) == ["in", "x", "y"]


async def test_items_are_listed_page_by_page_with_those_nobody_has_heard_of(history: History) -> None:
    await history.recording.record([arrival(i, 10) for i in (1, 2, 7)])
    seen, cursor = [], None
    while True:
        page = await history.items.list(EXECUTION, "each", limit=3, cursor=cursor)
        seen += page.items
        if (cursor := page.next) is None:
            break
    assert "".join(i.state[0] for i in seen) == "pssppppspp"
    assert [i.index for i in seen] == list(range(10))
    pending = await history.items.list(EXECUTION, "each", state=["pending"], limit=2)
    assert [i.index for i in pending.items] == [0, 3]
    done = await history.items.list(EXECUTION, "each", state=["succeeded"], limit=2)
    assert [i.index for i in done.items] == [1, 2]
    done = await history.items.list(EXECUTION, "each", state=["succeeded"], limit=2, cursor=done.next)
    assert [i.index for i in done.items] == [7]


# --- numbers ---


async def test_whoever_follows_the_numbers_sees_every_change(history: History) -> None:
    seen = 0
    for told in ([status("a")], [arrival(0)], [arrival(1)], [taking()], [status("a", "success", 1001.0)]):
        await history.recording.record(told)
        execution = await history.executions.get(EXECUTION)
        assert execution is not None
        assert execution.seq > seen
        nodes = await history.executions.nodes(EXECUTION, after_seq=seen)
        splits = await history.items.splits(EXECUTION, after_seq=seen)
        assert {row.seq for row in (*nodes.values(), *splits)} == {execution.seq}
        seen = execution.seq
    assert await history.executions.changed({EXECUTION: 0, "nobody": 3}) == {EXECUTION: seen}


async def test_events_are_numbered_and_paged(history: History) -> None:
    for i in range(30):
        await history.recording.record([status(f"a:{i}"), status(f"a:{i}", "success", 1001.0)])
    await history.executions.log(EXECUTION, "noted", {"by": "me"})
    first = await history.events.list(EXECUTION, limit=50)
    rest = await history.events.list(EXECUTION, limit=50, cursor=first.next)
    events = [*first.items, *rest.items]
    assert [event.seq for event in events] == list(range(1, 62))
    assert [event.kind for event in events[-2:]] == ["success", "noted"]
    one = await history.events.list(EXECUTION, step="a:7")
    assert [(event.kind, event.step) for event in one.items] == [("running", "a:7"), ("success", "a:7")]


async def test_two_masters_write_of_one_execution_at_the_same_time(address: str) -> None:
    steps = [[status(f"a:{i}"), status(f"a:{i}", "success", 1001.0)] for i in range(40)]

    async def master(history: History, mine: list[list[NodeStatusMessage]]) -> None:
        for told in mine:
            await history.recording.record(told)

    async with open_history(address) as one, AsyncExitStack() as stack:
        other = one
        if not address.startswith("sqlite"):
            other = await stack.enter_async_context(open_history(address))
        await asyncio.gather(master(one, steps[::2]), master(other, steps[1::2]))
        assert await counts(one) == {"a": {"success": 40}}
        events = await one.events.list(EXECUTION, limit=100)
        assert [event.seq for event in events.items] == list(range(1, 81))


async def test_texts_that_a_database_does_not_take(history: History) -> None:
    odd = item(0, 1, label="a\0b\udc80", key="ü\0")
    told = status("a", lineage_stack=odd), failure("b", code="\0", lineage_stack=odd)
    await history.recording.record(told)
    (found,) = (await history.items.list(EXECUTION, "each")).items
    assert (found.label, found.key) == ("a�b?", "ü�")


# --- any order ---


def life() -> list[NodeStatusMessage]:
    """All that is told of an execution with retries, a wait, a merge and a fan-out."""
    told = [
        status("a", at=1000.0),
        failure("a", at=1001.0, details={"retry_at": "2001-09-09T01:46:40.000Z"}, duration_ms=900),
        status("a", at=1002.0, attempt=2),
        status("a", at=1002.5, attempt=2),
        status("a", "waiting", at=1003.0, attempt=2, details={"resume_at": "2001-09-09T01:46:50.000Z"}),
        status("a", "success", at=1004.0, output={"x": 1}, duration_ms=3),
        status("a", "success", at=1004.5, output={"x": 1}, duration_ms=3),
        status("m:1", at=1005.0, join="m"),
        status("m:1", "waiting", at=1005.1, join="m", details={"arrived": 1, "expected": 2}),
        status("m:2", at=1005.2, join="m"),
        status("m", at=1005.3),
        status("m", "success", at=1005.4),
        status("each", at=1006.0),
        status("each", "success", at=1006.1, output={"count": 4}),
        status("lost", at=1006.5),
    ]
    for i in range(4):
        lineage = item(i, 4)
        told.append(status(f"edit:{i}", at=1007.0 + i, lineage_stack=lineage))
        if i == 1:
            told.append(failure(f"edit:{i}", at=1007.5 + i, lineage_stack=lineage))
            told.append(failure(f"other:{i}", "LATER", at=1007.6 + i, lineage_stack=lineage))
        elif i != 2:
            told.append(status(f"edit:{i}", "success", at=1007.5 + i, lineage_stack=lineage))
            told.append(arrival(i, 4, at=1008.0 + i))
            told.append(arrival(i, 4, at=1008.1 + i, processed=i))
    return [*told, taking(at=1013.0), taking("success", at=1013.5, output={"count": 4})]


@st.composite
def tellings(draw: st.DrawFn) -> list[list[NodeStatusMessage | CompletionMessage]]:
    """A life, some of it, told in batches in any order, some of it several times."""
    whole: list[NodeStatusMessage | CompletionMessage] = [*life(), completion(at=1014.0)]
    again = draw(st.lists(st.sampled_from(whole), max_size=10))
    told = draw(st.permutations([*whole, *again]))
    cuts = sorted(draw(st.sets(st.integers(1, len(told) - 1), max_size=8)))
    return [told[a:b] for a, b in zip([0, *cuts], [*cuts, len(told)], strict=True)]


async def final_rows(history: History, batches: list[list[NodeStatusMessage | CompletionMessage]]) -> object:
    """What is left in all tables once this has been told, but for numbers."""
    for batch in batches:
        statuses = [message for message in batch if isinstance(message, NodeStatusMessage)]
        completions = [message for message in batch if isinstance(message, CompletionMessage)]
        await history.recording.record(statuses, completions)
    rows = []
    for table in ("execution", "node", "step", "split", "item"):
        for row in await history.database.fetch(f"SELECT * FROM history_{table}"):
            values = {name: row[name] for name in row.keys() if name not in ("seq", "created_at")}  # noqa: SIM118
            rows.append((table, sorted((name, str(value)) for name, value in values.items())))
    return sorted(rows)


async def emptied(history: History) -> None:
    """Make it as if nothing had happened."""
    tables = ("execution", "node", "step", "split", "item", "event", "value")
    await history.database.write(*((f"DELETE FROM history_{table}", [()]) for table in tables))


def test_the_order_and_the_number_of_tellings_does_not_matter(address: str) -> None:
    with asyncio.Runner() as runner:
        opened = open_history(address)
        history = runner.run(opened.__aenter__())
        expected = runner.run(final_rows(history, [[*life(), completion(at=1014.0)]]))

        @settings(max_examples=60, suppress_health_check=list(HealthCheck))
        @given(tellings())
        def told(batches: list[list[NodeStatusMessage | CompletionMessage]]) -> None:
            runner.run(emptied(history))
            assert runner.run(final_rows(history, batches)) == expected

        try:
            told()
        finally:
            runner.run(opened.__aexit__(None, None, None))
