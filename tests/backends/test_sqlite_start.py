"""An execution whose start was cut off before its first message is forgotten; all others are not."""

from __future__ import annotations

from pathlib import Path

from msgspec import Raw

from rune.backends.sqlite import open_sqlite
from rune.core.messages import Task
from rune.core.operations import Arm, Commit, Timer


def task(execution: str) -> Task:
    return Task(
        workflow_id="w", execution_id=execution, current_node="a", accumulated_context={"$a": Raw(b"1")}
    )


async def test_only_what_nothing_moves_on_is_forgotten(tmp_path: Path) -> None:
    path = str(tmp_path / "rune.db")
    async with open_sqlite(path) as (broker, state):
        for execution in ("cut_off", "queued", "sleeping", "paused", "child_1"):
            await state.put(execution, {"hash": b"1"})
        await broker.publish([task("queued")])
        await state.apply("sleeping", [Commit("step", (), [Arm(Timer("t", None, b"{}"))])])
        await state.pause("paused")
        await state.park("paused", "step", b"{}")
    async with open_sqlite(path) as (_, state):
        await state.forget_unstarted()
        # A child is started by its caller, again and again until it is.
        assert await state.live() == ["queued", "sleeping", "paused", "child_1"]
        assert await state.get("cut_off", ["hash"]) == {}
        assert await state.get("queued", ["hash"]) == {"hash": b"1"}
