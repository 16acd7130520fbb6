"""Whatever is asked in whatever order, Redis answers what the ledger answers."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from rune.backends.memory import MemoryState
from rune.backends.redis import RedisState
from rune.core.operations import (
    Answer,
    Arm,
    ArriveAt,
    Commit,
    End,
    Expire,
    Extend,
    MergeView,
    Open,
    Operation,
    Place,
    Record,
    Rule,
    Settle,
    Skip,
    Timer,
    TryAgain,
    scope_key,
)
from rune.core.outcome import Policy
from rune.core.ports import State
from tests.backends.conftest import Clock
from tests.servers.redis import RedisServer

WALKS = 40
"""Executions for each seed."""

ROOT: Place = ()
OUTER: list[Place] = [(("b", i),) for i in range(3)]
INNER: list[Place] = [(*OUTER[i], (f"b{i}", j)) for i in range(2) for j in range(2)]
PLACES: list[Place] = [ROOT, *OUTER, *INNER, (*INNER[0], ("b00", 0))]
OPENED: dict[Place, str] = {ROOT: "b", OUTER[0]: "b0", OUTER[1]: "b1", INNER[0]: "b00"}
DATA = [b"1", b'"two"', b"{}", b"\xc3\xa9\x00\xff"]
NUMBERS: list[float | int] = [0, 1, -3, 0.1, 1e300, -1e300, 5e-324, 2**60, -(2**80) + 1, 10**40, 1.0, 1, 1e-7]


class Walk:
    """Random questions, most of them such as an engine would ask."""

    def __init__(self, seed: int, execution: str) -> None:
        self.random = random.Random(seed)
        self.execution = execution
        self.totals = {barrier: self.random.choice([1, 2, 3, 3]) for barrier in OPENED.values()}

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def step(self, place: Place) -> str:
        return f"{scope_key(place)}#{self.random.randrange(5)}"

    def timer(self) -> Timer:
        due = self.random.choice([None, 0.1, 1.5, 7.0, 100.25])
        at = None if due is None else 1_000_000.0 + due
        return Timer(f"t{self.random.randrange(4)}", at, self.random.choice(DATA), self.chance(30))

    def maybe_timer(self) -> Timer | None:
        return self.timer() if self.chance(30) else None

    def place(self) -> Place:
        return self.random.choice(PLACES)

    def begin(self) -> list[Commit]:
        """Keep the root alive, and open what there is to open."""
        opens = [Commit(self.step(at), at, [self.open(at)]) for at in OPENED if at == ROOT or self.chance(70)]
        return [Commit("#fork", ROOT, [Settle(+6)]), *opens]

    # --- operations ---

    def settle(self, place: Place) -> Settle:
        pick = self.random.choice
        change = pick([-1, -1, -1, 0, 1] if place else [-1, 0, 1])
        error = pick([None, None, None, b'{"e":1}', b'{"e":2}']) if place else None
        folds = tuple(self.random.choices(NUMBERS, k=self.random.choice([0, 1, 2])))
        end = pick([None, *DATA]) if change < 0 else None
        return Settle(change, end, pick(["", ".0", ".1", ".1.2", ".10"]), pick("nm"), folds, error)

    def rule(self, place: Place) -> Rule:
        # The need is the node's own, the same each time.
        need = [None, None, 1, 2][len(scope_key(place)) % 4]
        return Rule(f"m{scope_key(place)}", "n", 4, need, self.maybe_timer())

    def open(self, place: Place) -> Open:
        barrier = OPENED[place]
        lazy = self.chance(30)
        total = self.totals[barrier] if self.chance(95) and not lazy else 0
        window = self.random.choice([1, 2, 5, 9] if lazy else [0, 0, 1, 2])
        policy = Policy(self.random.choice([None, None, 0, 1]), self.chance(50))
        release, keep = f"release {barrier}".encode(), self.chance(80)
        published = min(total, window) if window else total
        width = self.random.choice([1, 1, 2])
        timer = self.maybe_timer()
        return Open(barrier, total, width, release, policy, window, published, keep, timer, b"refill", lazy)

    def extend(self) -> Extend:
        pick = self.random.choice
        more, known = pick([b"", b"refill 2"]), pick([b"", b"release 2"])
        return Extend(pick([0, 1, 1, 2, 6]), self.chance(20), more, known, pick([None, None, None, b"{}"]))

    def expire(self, place: Place) -> Expire:
        target = self.random.choice([OPENED.get(place, "b"), f"m{scope_key(place)}"])
        since = self.random.choice([0.0, 1_000_003.0])
        return Expire(target, self.timer(), self.random.choice([None, 5.0, 50.0]), since)

    def operation(self, place: Place) -> Operation:
        pick = self.random.choice
        kinds: list[Callable[[], Operation]] = [
            *[lambda: self.settle(place)] * 6,
            *[lambda: ArriveAt(self.rule(place), self.random.randrange(3), pick(DATA))] * 3,
            *[lambda: Skip(self.rule(place), pick(["x!e", "y!e"]), self.random.choice([1, 1, 2]))] * 2,
            lambda: Arm(self.timer()),
            lambda: TryAgain(pick([1, 2]), self.timer()),
            *[lambda: self.open(place)] * (2 if place in OPENED else 0),
            lambda: self.expire(place),
        ]
        return pick(kinds)()

    def commit(self) -> Commit:
        place = self.place()
        operations = [self.operation(place)]
        if self.chance(1):
            operations = [End("failed", self.random.choice([None, b"{}"]), "why", b"{}")]
        reads = ""
        if place in OPENED and self.chance(25):
            operations, reads = [self.extend()] if self.chance(80) else operations, OPENED[place]
        if self.chance(30):
            operations.insert(0, Record(self.random.choice(DATA), self.random.choice([0, 0, 0, 1])))
        return Commit(self.step(place), place, operations, reads=reads)

    # --- questions ---

    def ask(self) -> tuple[str, tuple[Any, ...]]:
        """A method of State, and its arguments."""
        place, fence = self.place(), self.random.choice([1, 1, 2])
        match self.random.choices(["apply", "lease", "renew", "give_back", "claim"], [70, 12, 4, 4, 10])[0]:
            case "apply":
                return "apply", ([self.commit() for _ in range(self.random.choice([1, 1, 1, 2, 4]))],)
            case "lease":
                places = {self.step(at): at for at in (place, self.place())}
                return "lease", (list(places.items()), self.random.choice([1, 1, 2]), 20.0)
            case "renew":
                return "renew", (self.step(place), fence, 40.0)
            case "give_back":
                return "give_back", ([(self.step(place), fence)],)
            case _:
                return "claim", (self.chance(50),)


async def asked(state: State, clock: Clock, execution: str, what: str, arguments: tuple[Any, ...]) -> Any:
    """The answer of one of the two."""
    match what:
        case "apply" | "give_back":
            return await getattr(state, what)(execution, *arguments)
        case "lease" | "renew":
            *rest, seconds = arguments
            return await getattr(state, what)(execution, *rest, clock.now + seconds)
    claimed = sorted(await state.claim(clock.now, 100, clock.now + 30), key=lambda timer: timer.id)
    if arguments[0]:
        await state.discharge(claimed)
    return claimed, await state.next_due()


async def views(state: State, execution: str) -> list[Any]:
    """All that can be read of an execution."""
    seen: list[Any] = []
    for barrier in OPENED.values():
        view = await state.barrier(execution, barrier)
        seen += [view, await state.slots(execution, barrier, 0, 5) if view is not None else None]
    for place in PLACES:
        seen.append(plain(await state.merge(execution, f"m{scope_key(place)}")))
    for i in range(4):
        timer = await state.timer(execution, f"t{i}")
        seen.append(timer and (timer.due, timer.task, timer.sleeping))
    return [*seen, await state.next_due()]


def plain(answer: Any) -> Any:
    """An answer without what does not matter."""
    match answer:
        case list():
            return [plain(each) for each in answer]
        case Answer():
            if answer.refill is None:
                answer.refill_task = b""
            if answer.ending is not None:
                answer.ending = msgspec.structs.replace(answer.ending, contexts=tuple(answer.ending.contexts))
        case MergeView():
            ordered = tuple(sorted(answer.arrivals, key=lambda arrival: arrival.step))
            return msgspec.structs.replace(answer, arrivals=ordered)
    return answer


@pytest.fixture
async def nothing_left(server: RedisServer) -> AsyncIterator[None]:
    """Afterwards nothing is left of any execution but its tombstone."""
    yield
    assert {key.rpartition(":")[2] for key in server.keys("exec:*")} <= {"x"}
    assert server.keys("{rune}*") <= {"{rune}:epoch", "{rune}:ended", "{rune}:endings"}


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("seed", range(10))
async def test_redis_answers_what_the_ledger_answers(state: RedisState, clock: Clock, seed: int) -> None:
    for number in range(WALKS):
        clock.now = 1_000_000.0
        execution = f"e{number}"
        reference = MemoryState(clock)
        walk = Walk(seed * 1_000_000 + number, execution)
        begun = walk.begin()
        assert plain(await state.apply(execution, begun)) == plain(await reference.apply(execution, begun))
        for turn in range(40):
            question = walk.ask()
            expected = await asked(reference, clock, execution, *question)
            found = await asked(state, clock, execution, *question)
            assert plain(found) == plain(expected), (number, turn, question)
            clock.advance(walk.random.choice([0.0, 0.0, 0.0, 0.5, 3.0, 20.0]))
        assert await views(state, execution) == await views(reference, execution), number
        await state.bury(execution, [], clock.now + 100)


class Reading:
    """One lazy fan-out: portions are read, items end, and anybody may ask again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.window = self.random.choice([1, 2, 3, 5, 8, 13])
        self.known = self.read = 0

    def begin(self) -> Commit:
        policy = Policy(self.random.choice([None, None, 2]), self.random.random() < 0.5)
        lazy = Open("b", 0, 1, b"release", policy, self.window, refill=b"refill", lazy=True)
        return Commit("split", ROOT, [lazy])

    def commit(self) -> Commit:
        if self.random.random() < 0.4:
            number = self.random.randint(max(0, self.read - 2), self.read)
            pick = random.Random(f"{self.window} {number}").choice
            count, ended = pick([0, 1, 2, 3, 5, 21]), pick([False] * 9 + [True])
            self.read, self.known = max(self.read, number + 1), self.known + count
            extend = Extend(count, ended, b"refill %d" % number, b"known" if ended else b"")
            return Commit(f"r{number}", ROOT, [Record(b"%d" % number), extend], reads="b")
        item, error = self.random.randrange(self.known + 1), self.random.choice([None] * 9 + [b"{}"])
        return Commit(f"i{item}", (("b", item),), [Settle(-1, b"1", error=error)])


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("seed", range(5))
async def test_a_lazy_fan_out_goes_on_as_in_the_ledger(state: RedisState, clock: Clock, seed: int) -> None:
    ahead = 0
    for number in range(WALKS):
        execution, reference = f"e{number}", MemoryState(clock)
        reading = Reading(seed * 1_000_000 + number)
        questions = [[reading.begin()]]
        questions += [[reading.commit() for _ in range(reading.random.choice([1, 1, 3]))] for _ in range(40)]
        for turn, commits in enumerate(questions):
            expected = plain(await reference.apply(execution, commits))
            assert plain(await state.apply(execution, commits)) == expected, (number, turn, commits)
            ahead += sum(answer.reads for answer in expected)
        assert await views(state, execution) == await views(reference, execution), number
        await state.bury(execution, [], clock.now + 100)
    assert ahead > WALKS, "sources are read while their items are published"
