"""The watch: what State has lost is failed, what was never started is started, nothing else is touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from rune.core.messages import CompletionMessage, NodeStatusMessage
from rune.engine.statuses import iso
from rune.history.executions import Execution, NewExecution
from rune.master.watch import Watch
from tests.conformance.flows import flow, node
from tests.master.mending import Mending, compiled, mending

WAITS = flow([node("w", "wait", resume="webhook"), node("n", "note")], "w > n")


class Guarded:
    """A rig with somebody who watches it."""

    def __init__(self, rig: Mending) -> None:
        self.rig = rig
        self.started: list[str] = []
        rig.history.executions._clock = rig.clock
        self.watch = Watch(rig.history, rig.runtime, self._start, clock=rig.clock)  # type: ignore[arg-type]

    async def _start(self, execution: Execution) -> None:
        self.started.append(execution.id)
        text = await self.rig.history.executions.definition(execution.id)
        assert text is not None
        seeds = self.rig.redriving.seeds_of(execution, compiled(msgspec.json.decode(text)))
        root = execution.root if execution.parent else ""
        await self.rig.runtime.start(
            compiled(msgspec.json.decode(text)),
            execution.id,
            {"$trigger": Raw(b"{}")},
            root=root,
            seeds=seeds,
        )

    async def store(self, id: str) -> None:
        """Store an execution that is not started."""
        definition = compiled(WAITS).definition.decode()
        await self.rig.history.executions.create(NewExecution(id=id, definition=definition))

    async def start(self, id: str) -> None:
        """Store one, start it, and let it come to its wait."""
        await self.store(id)
        await self.rig.runtime.start(compiled(WAITS), id, {"$trigger": Raw(b"{}")})
        await self.rig.run()
        await self.rig.record()

    async def look(self, *after: float) -> None:
        """Look, so many seconds after the look before."""
        for seconds in after:
            self.rig.clock.now += seconds
            await self.watch.look()

    async def status(self, id: str) -> str:
        found = await self.rig.history.executions.get(id)
        assert found is not None
        return found.status if found.error is None else f"{found.status} {found.error.code}"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with mending(tmp_path) as rig:
        yield Guarded(rig)


async def test_what_rests_is_left_alone_however_long(guarded: Guarded) -> None:
    await guarded.start("e1")
    await guarded.look(100, 10_000, 1_000_000)
    assert (await guarded.status("e1"), guarded.started) == ("running", [])


async def test_what_state_has_lost_is_failed_with_the_reason(guarded: Guarded) -> None:
    await guarded.start("e1")
    guarded.rig.backend.state.rows.executions.clear()  # type: ignore[attr-defined]
    await guarded.look(100)
    assert await guarded.status("e1") == "running"
    await guarded.look(30, 30)
    assert await guarded.status("e1") == "failed STATE_LOST"


async def test_what_comes_back_was_not_lost(guarded: Guarded) -> None:
    await guarded.start("e1")
    kept = dict(guarded.rig.backend.state.rows.executions)  # type: ignore[attr-defined]
    known = guarded.rig.backend.state.rows.executions  # type: ignore[attr-defined]
    known.clear()
    await guarded.look(100)
    known.update(kept)
    await guarded.look(30)
    known.clear()
    # It is lost anew: what was before does not count.
    await guarded.look(30)
    assert await guarded.status("e1") == "running"


async def test_what_was_stored_but_not_started_is_started(guarded: Guarded) -> None:
    await guarded.store("e1")
    await guarded.look(1)
    assert guarded.started == []
    await guarded.look(100)
    assert guarded.started == ["e1"]
    await guarded.rig.run()
    await guarded.rig.record()
    await guarded.look(100, 100)
    assert (await guarded.status("e1"), guarded.started) == ("running", ["e1"])


async def test_a_start_that_was_cut_off_is_done_again(guarded: Guarded) -> None:
    await guarded.store("e1")
    await guarded.rig.state.put("e1", {"definition": b"{}"})
    await guarded.look(100, 300)
    assert guarded.started == []
    await guarded.look(300)
    assert guarded.started == ["e1"]


async def test_one_that_has_ended_gets_time_to_say_so(guarded: Guarded) -> None:
    await guarded.start("e1")
    await guarded.rig.state.bury("e1", [], guarded.rig.clock.now + 1_000_000)
    await guarded.look(100, 3000)
    assert await guarded.status("e1") == "running"
    await guarded.look(601)
    assert await guarded.status("e1") == "failed COMPLETION_LOST"


async def test_one_that_may_be_but_a_message_is_lost_after_more_than_a_messages_life(
    guarded: Guarded,
) -> None:
    status = NodeStatusMessage(
        workflow_id="wf",
        execution_id="wire1",
        node_id="n",
        status="running",
        executed_at=iso(guarded.rig.clock.now),
        duration_ms=0,
        step="s",
    )
    await guarded.rig.history.recording.record([status])
    await guarded.look(100, 3600, 80_000)
    assert await guarded.status("wire1") == "running"
    await guarded.look(10_000, 100)
    assert await guarded.status("wire1") == "failed STATE_LOST"


async def test_what_ended_after_all_stays_as_it_ended(guarded: Guarded) -> None:
    await guarded.start("e1")
    guarded.rig.backend.state.rows.executions.clear()  # type: ignore[attr-defined]
    await guarded.look(100)
    completion = CompletionMessage(
        workflow_id="wf",
        execution_id="e1",
        status="completed",
        final_context={},
        completed_at=iso(guarded.rig.clock.now),
        total_duration_ms=1,
    )
    await guarded.rig.history.recording.record([], [completion])
    await guarded.look(100, 100)
    assert await guarded.status("e1") == "completed"
