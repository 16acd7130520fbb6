"""What the outside is told of steps as they run."""

from __future__ import annotations

from typing import Any

import pytest

from rune.core.context import Ref
from rune.core.errors import ErrorInfo
from rune.core.ids import content_hash
from rune.core.messages import NodeStatusMessage
from rune.core.operations import Answer, Progress
from rune.core.outcome import Arrive, Done, Failed, FanOut, Join, Outcome, Sleep, Source
from rune.core.step import Follow
from rune.engine.running import Attempt
from rune.engine.statuses import Statuses, iso
from tests.core.graphs import NOW, branch, frame, graph, plain, raw, step
from tests.engine.bench import Clock, Outbox

FLOW = graph("a > b")
AT = step(FLOW, "a", branch(lineage=(frame("s", 1),)))
ERROR = ErrorInfo("broken", "BROKEN")


class Desk:
    def __init__(self) -> None:
        self.clock = Clock()
        self.broker = Outbox()
        self.statuses = Statuses(self.broker, self.clock)

    def told(self, outcome: Outcome | None, *, retry_in: float | None = None, **answer: Any) -> Any:
        """What is told of a step that came out so."""
        attempt = Attempt(outcome or Failed(ERROR), NOW - 0.25, retry_in)
        counted = None if retry_in is not None else outcome
        answered = Answer(**answer)
        follow = Follow(outcome=counted, answer=answered, turn=answered.turn)
        self.statuses.concluded([AT], [attempt], [follow])
        told, self.broker.statuses = self.broker.statuses, []
        assert len(told) <= 1
        return told[0] if told else None


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_step_that_starts_is_running(desk: Desk) -> None:
    desk.statuses.running([AT])
    (status,) = desk.broker.statuses
    assert status == NodeStatusMessage(
        workflow_id="wf",
        execution_id="exec",
        node_id="a",
        status="running",
        executed_at="2027-01-15T08:00:00.000Z",
        duration_ms=0,
        node_name="A",
        lineage_stack=AT.branch.lineage,
        step="step1",
    )


def test_success_has_the_output_and_how_long_it_took(desk: Desk) -> None:
    status = desk.told(Done(raw({"x": 1})))
    assert (status.status, plain(status.output), status.duration_ms) == ("success", {"x": 1}, 250)


def test_a_stored_output_is_told_by_where_it_is(desk: Desk) -> None:
    ref = Ref("h", 100_000, "$a")
    status = desk.told(Done(None, refs=(ref,)))
    assert (status.output, status.output_ref) == (None, ref)


def test_what_a_step_set_is_told_with_its_turn(desk: Desk) -> None:
    status = desk.told(Done(raw(1), sets={"x": [1]}), turn=3)
    assert (status.sets.turn, plain(status.sets.values), status.sets.ref) == (3, {"x": [1]}, None)
    assert desk.told(Done(raw(1))).sets is None


def test_much_that_a_step_set_is_told_by_where_it_is(desk: Desk) -> None:
    much = {"x": "x" * 100_000}
    status = desk.told(Done(raw(1), sets=much), turn=3)
    data = bytes(raw(much))
    assert (status.sets.values, status.sets.ref) == (None, Ref(content_hash(data), len(data)))


def test_failure_has_the_error(desk: Desk) -> None:
    status = desk.told(Failed(ERROR))
    assert (status.status, status.error, status.details) == ("failed", ERROR, None)


def test_a_failure_that_is_tried_again_says_when(desk: Desk) -> None:
    status = desk.told(Failed(ERROR), retry_in=60)
    assert (status.status, status.error) == ("failed", ERROR)
    assert status.details == {"retry_at": iso(NOW + 60), "attempt": 1}


@pytest.mark.parametrize(("until", "resume_at"), [(NOW + 60, iso(NOW + 60)), (None, None)])
def test_a_sleeper_waits(desk: Desk, until: float | None, resume_at: str | None) -> None:
    status = desk.told(Sleep(until, raw({})))
    assert (status.status, status.details) == ("waiting", {"resume_at": resume_at})


def test_a_split_says_how_many_items_it_has(desk: Desk) -> None:
    status = desk.told(FanOut(Source(stop=3)))
    assert (status.status, plain(status.output)) == ("success", {"count": 3})


def test_an_arrival_at_a_merge_waits_until_it_opens(desk: Desk) -> None:
    status = desk.told(Join(), arrived=(1, 2))
    assert (status.status, status.details) == ("waiting", {"arrived": 1, "expected": 2})
    assert desk.told(Join(), arrived=(2, 2), opened=["m"]) is None


def progress(processed: int, total: int) -> Any:
    return {"progress": Progress(processed, total, 1, 2)}


def test_every_arrival_of_a_small_fan_out_is_told(desk: Desk) -> None:
    told = [desk.told(Arrive(raw(1)), **progress(i, 100)) for i in range(1, 101)]
    assert [status.details["processed"] for status in told] == list(range(1, 101))
    assert told[0].details == {"processed": 1, "total": 100, "failed": 1, "skipped": 2}
    assert told[0].status == "waiting"


def test_a_large_fan_out_is_told_ten_times_a_second_and_at_its_end(desk: Desk) -> None:
    told = []
    for i in range(1, 1001):
        desk.clock.now = NOW + i / 1000
        told.append(desk.told(Arrive(raw(1)), **progress(i, 1000)))
    seen = [status.details["processed"] for status in told if status]
    assert 10 <= len(seen) <= 12
    assert (seen[0], seen[-1]) == (1, 1000)


def test_a_branch_that_was_dropped_is_not_told(desk: Desk) -> None:
    assert desk.told(None, gone=True) is None
    assert desk.told(Arrive(raw(1))) is None


def test_nothing_is_made_when_nobody_listens(desk: Desk) -> None:
    desk.broker.listened = False
    desk.statuses.running([AT])
    assert desk.told(Done(raw(1))) is None
    assert desk.broker.statuses == []


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000.25, "2027-01-15T08:00:00.250Z"),
        (1_800_000_000.001, "2027-01-15T08:00:00.001Z"),
        (1_800_000_000.123, "2027-01-15T08:00:00.123Z"),
    ],
)
def test_times_are_written_in_utc_to_the_millisecond(at: float, text: str) -> None:
    assert iso(at) == text
