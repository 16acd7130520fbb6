"""Whatever is asked, SQLite answers as memory does: with a cold cache, after a crash, beside a bad call."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.backends.memory import MemoryState
from rune.backends.sqlite import SqliteState, open_sqlite
from rune.core.operations import (
    Arm,
    ArriveAt,
    Commit,
    End,
    Expire,
    Extend,
    Open,
    Place,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
    TryAgain,
)
from rune.core.outcome import Policy
from rune.core.ports import State
from tests.backends.conftest import Clock

E = "exec_1"

BARRIERS: dict[str, Place] = {
    "b": (),
    "c": (),
    "i0": (("b", 0),),
    "i1": (("b", 1),),
    "j": (("b", 0), ("i0", 1)),
}
"""Each barrier by the scope it is opened in."""
PLACES: list[Place] = [
    (),
    *((*place, (barrier, item)) for barrier, place in BARRIERS.items() for item in range(3)),
]

steps = st.sampled_from([f"s{i}" for i in range(8)])
places = st.sampled_from(PLACES)
data = st.sampled_from([b"1", b"2"])
errors = st.sampled_from([None, None, None, b'{"message":"no"}'])
timers = st.builds(
    Timer,
    st.sampled_from(["t0", "t1", "t2"]),
    st.sampled_from([None, 1_000_010.0, 1_000_020.0]),
    data,
    st.booleans(),
)
rules = st.builds(
    Rule,
    st.sampled_from(["m0", "m1"]),
    st.just("n"),
    st.integers(2, 3),
    st.sampled_from([None, 1, 2]),
    st.none() | timers,
)
first_operations = st.one_of(
    st.builds(Record, data, st.sampled_from([0, 0, 1, 2])),
    st.builds(TryAgain, st.integers(1, 2), timers),
    st.builds(Skip, rules, st.sampled_from(["x", "y", "z"]), st.integers(1, 2)),
    st.builds(Arm, timers),
)
last_operations = st.one_of(
    st.builds(
        Settle,
        st.sampled_from([-1, -1, -1, 1, 2]),
        st.none() | data,
        st.sampled_from(["", ".0", ".1"]),
        st.just("n"),
        st.sampled_from([(), (1,), (0.1, 2)]),
        errors,
    ),
    st.builds(ArriveAt, rules, st.integers(0, 2), data),
    st.builds(
        Expire, st.sampled_from([*BARRIERS, "m0", "m1"]), timers, st.sampled_from([None, 5.0]), st.just(0.0)
    ),
)
# As plans do: what may end the scope comes last, for the gate is asked once in a commit.
operations = st.builds(
    lambda first, last: [*first, *last],
    st.lists(first_operations, max_size=2),
    st.lists(last_operations, max_size=1),
)
commits = st.builds(Commit, steps, places, operations)
ended_items = st.builds(
    lambda step, place, operation: Commit(step, place, [operation]),
    steps,
    places.filter(bool),
    st.builds(Settle, st.just(-1), st.none() | data, error=errors),
)


@st.composite
def openings(draw: st.DrawFn) -> Commit:
    barrier, place = draw(st.sampled_from(sorted(BARRIERS.items())))
    operation = Open(
        barrier,
        draw(st.integers(0, 3)),
        draw(st.integers(1, 2)),
        b"release",
        draw(st.sampled_from([Policy(), Policy(0), Policy(1), Policy(need_success=True)])),
        draw(st.sampled_from([0, 2])),
        2,
        draw(st.booleans()),
        draw(st.none() | timers),
        b"refill",
    )
    if draw(st.booleans()):
        operation = msgspec.structs.replace(operation, total=0, published=0, window=2, lazy=True)
    return Commit(draw(steps), place, [operation])


@st.composite
def readings(draw: st.DrawFn) -> Commit:
    barrier, place = draw(st.sampled_from(sorted(BARRIERS.items())))
    tasks = st.sampled_from([b"", b"another"])
    extend = Extend(draw(st.integers(0, 2)), draw(st.booleans()), draw(tasks), draw(tasks), draw(errors))
    return Commit(draw(steps), place, [extend], reads=barrier)


Call = Callable[[State, Clock], Awaitable[Any]]


def _call(name: str, *arguments: Any) -> Call:
    async def ask(state: State, clock: Clock) -> Any:
        answer = await getattr(state, name)(E, *arguments)
        return _comparable(answer)

    ask.__name__ = f"{name}{arguments}"
    return ask


def _comparable(answer: Any) -> Any:
    if hasattr(answer, "arrivals"):
        return sorted((a.order, a.step, a.payload) for a in answer.arrivals), answer.failed, answer.winner
    # As JSON, in which a list and a tuple are the same.
    return msgspec.json.encode(answer)


def _timed(name: str) -> Call:
    async def ask(state: State, clock: Clock) -> Any:
        if name == "claim":
            claimed = await state.claim(clock.now, 10, clock.now + 30)
            return sorted((t.id, t.due, t.task, t.sleeping, t.execution) for t in claimed)
        return await state.next_due()

    ask.__name__ = name
    return ask


calls: st.SearchStrategy[Call] = st.one_of(
    st.lists(st.one_of(commits, ended_items, openings(), readings()), min_size=1, max_size=4).map(
        lambda c: _call("apply", c)
    ),
    st.lists(ended_items, min_size=3, max_size=8).map(lambda c: _call("apply", c)),
    st.tuples(steps, places, st.integers(1, 2)).map(
        lambda x: _call("lease", [(x[0], x[1])], x[2], 1_000_015.0)
    ),
    st.tuples(steps, st.integers(1, 2)).map(lambda x: _call("renew", x[0], x[1], 1_000_025.0)),
    st.tuples(steps, st.integers(1, 2)).map(lambda x: _call("give_back", [x])),
    st.sampled_from([*BARRIERS]).map(lambda b: _call("barrier", b)),
    st.sampled_from(["m0", "m1"]).map(lambda m: _call("merge", m)),
    st.sampled_from([_call("pause"), _call("unpause"), _call("unparked"), _call("park", "s0", b"task")]),
    st.sampled_from([_timed("claim"), _timed("next_due")]),
    st.just(_call("apply", [Commit("end", (), [End("failed")])])),
)
disturbances = st.sampled_from(
    ["", "together", "together", "together", "later", "cold cache", "bad call", "crash"]
)
stories = st.lists(st.tuples(disturbances, calls), min_size=5, max_size=40)


class Twins:
    """The same story in memory and in SQLite."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.memory = MemoryState(self.clock)
        self.sqlite: SqliteState
        self._directory = directory
        self._lives = 0

    async def open(self, stack: AsyncExitStack) -> None:
        path = str(self._directory / f"{self._lives}.db")
        _, self.sqlite = await stack.enter_async_context(open_sqlite(path, clock=self.clock))

    async def disturb(self, how: str, stack: AsyncExitStack) -> None:
        if how == "later":
            self.clock.advance(5)
        elif how == "cold cache":
            self.sqlite._rows.rolled_back()
        elif how == "bad call":
            await self._bad_call()
        elif how == "crash":
            await self._crash(stack)

    async def _bad_call(self) -> None:
        def bad() -> None:
            self.sqlite._ledger.apply(
                E, [Commit("bad", (), [Settle(+5), Record(b"bad"), Arm(Timer("bad", 1.0, b""))])]
            )
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await self.sqlite._database.run(bad)

    async def _crash(self, stack: AsyncExitStack) -> None:
        """Go on with the files as they are: what a process that is killed leaves behind."""
        old = self._directory / f"{self._lives}.db"
        self._lives += 1
        for suffix in ("", "-wal"):
            shutil.copy(f"{old}{suffix}", self._directory / f"{self._lives}.db{suffix}")
        await self.open(stack)
        # With the process go its leases and claims; memory knows no such thing, so it is told.
        for execution in self.memory.rows.executions.values():
            for step in execution.steps.values():
                step.leased_until = 0.0

    async def ask(self, calls: Sequence[Call]) -> None:
        """Ask both: memory one after the other, SQLite all at once."""
        expected = [await call(self.memory, self.clock) for call in calls]
        assert await asyncio.gather(*(call(self.sqlite, self.clock) for call in calls)) == expected


async def live(story: Sequence[tuple[str, Call]], *, crashes: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        twins = Twins(Path(directory))
        async with AsyncExitStack() as stack:
            await twins.open(stack)
            together: list[Call] = []
            for disturbance, call in story:
                name = call.__name__  # type: ignore[attr-defined]
                if crashes and name == "claim":
                    continue  # void after a crash, which memory cannot play
                if disturbance != "together" or not name.startswith(("apply", "lease", "give_back")):
                    await twins.ask(together)
                    together.clear()
                    await twins.disturb(disturbance if crashes or disturbance != "crash" else "", stack)
                together.append(call)
                if not name.startswith(("apply", "lease", "give_back")):
                    await twins.ask(together)
                    together.clear()
            await twins.ask(together)


@given(stories)
@settings(max_examples=100)
async def test_the_same_questions_get_the_same_answers(story: list[tuple[str, Call]]) -> None:
    await live(story, crashes=False)


@given(stories)
@settings(max_examples=40)
async def test_the_same_answers_after_a_crash(story: list[tuple[str, Call]]) -> None:
    await live(story, crashes=True)
