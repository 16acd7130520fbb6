"""The ports: what the engine asks of a Broker and of State, at the level of meaning.

Every State call may be repeated. A repeated call changes nothing and gets the answer that the first one got,
for as long as that answer can still matter: until the enclosing scope has ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rune.core.messages import CompletionMessage, NodeStatusMessage, Task
from rune.core.outcome import Policy

if TYPE_CHECKING:
    from rune.core.holding import Holding, Standing

__all__ = [
    "Answer",
    "Arm",
    "Arrival",
    "ArriveAt",
    "BarrierView",
    "Broker",
    "Commit",
    "DeadLetter",
    "Delivery",
    "End",
    "Ending",
    "Expire",
    "Lease",
    "MergeView",
    "Open",
    "Operation",
    "Place",
    "Progress",
    "Record",
    "Rule",
    "Seed",
    "Settle",
    "Skip",
    "State",
    "Timer",
    "TryAgain",
    "scope_key",
]

Place = tuple[tuple[str, int], ...]
"""A scope: the (barrier, item) pairs that lead to it from the outside in; () is the execution itself."""


def scope_key(place: Place) -> str:
    """A scope's name: the execution's own is empty."""
    return f"{place[-1][0]}.{place[-1][1]}" if place else ""


class Timer(Struct, frozen=True, gc=False):
    """A Task to publish, as it is, when its time has come."""

    id: str
    due: float | None
    """Seconds since the epoch; None is never, until released."""
    task: bytes
    sleeping: bool = True
    """A branch rests in it, so that default time-outs around it do not count."""
    execution: str = ""
    """Filled in by State."""
    was_due: float = 0.0
    """Of one that is claimed, until `due`: when its time had come."""


class Seed(Struct, frozen=True):
    """What an earlier execution of the same root knows of a step, before this one comes to it."""

    step: str
    place: Place
    outcome: bytes = b""
    """Its record; empty leaves none."""
    values: Mapping[str, bytes] = {}
    """What the outcome refers to, by hash."""


# --- operations: what one commit may ask, carried out in order, all or nothing ---


class Record(Struct, frozen=True, tag=True, gc=False):
    """Keep this outcome as the step's one result. If another stands, nothing of the commit is done."""

    outcome: bytes
    fence: int = 0


class TryAgain(Struct, frozen=True, tag=True):
    """Count this attempt as spent, give the lease back, and arm the timer of the next one."""

    attempt: int
    timer: Timer


class Settle(Struct, frozen=True, tag=True, gc=False):
    """Change the scope's live count by `change`, once for this step; at zero the scope ends.

    `end` is what a branch that ends leaves behind: in the root its context, in an item its result (None for a
    ghost). `error` fails the item, the first error counts.
    """

    change: int
    end: bytes | None = None
    path: str = ""
    node: str = ""
    folds: tuple[float | int, ...] = ()
    error: bytes | None = None


class Rule(Struct, frozen=True):
    """When a merge opens: `need` live arrivals (None: all that can come) of `expected` in weight."""

    merge: str
    node: str
    expected: int
    need: int | None = None
    timer: Timer | None = None
    """Armed at the first live arrival."""


class ArriveAt(Struct, frozen=True, tag=True):
    """A live branch reaches a merge. If it opens it, it goes on as what follows; otherwise it ends."""

    rule: Rule
    order: int
    payload: bytes


class Skip(Struct, frozen=True, tag=True):
    """A merge will not see `weight` arrivals: `member` names who knows."""

    rule: Rule
    member: str
    weight: int


class Open(Struct, frozen=True, tag=True):
    """Open the barrier of a fan-out. `release` is the Task that whoever closes it publishes."""

    barrier: str
    total: int
    width: int
    """Branches an item starts with."""
    release: bytes
    policy: Policy = Policy()
    window: int = 0
    published: int = 0
    keep_results: bool = True
    timer: Timer | None = None
    refill: bytes = b""
    """The Task that publishes more items, given a cursor."""


class Arm(Struct, frozen=True, tag=True):
    """Arm a timer; the first one of its id stands."""

    timer: Timer


class Expire(Struct, frozen=True, tag=True):
    """The time of a barrier or a merge is up: it fails, unless it has opened.

    With `idle` set, only time without progress counts: nothing happened in the execution for `idle` seconds
    (since `since` at the earliest), and no branch sleeps or runs in it; else the timer is armed again: where
    a branch sleeps, for `idle` seconds after it wakes.
    """

    target: str
    timer: Timer
    idle: float | None = None
    since: float = 0.0


class End(Struct, frozen=True, tag=True):
    """End the execution now, with this status."""

    status: str
    error: bytes | None = None
    reason: str = ""
    context: bytes | None = None


Operation = Record | TryAgain | Settle | ArriveAt | Skip | Open | Arm | Expire | End


class Commit(Struct, frozen=True, gc=False):
    """What one step asks of State, atomically."""

    step: str
    place: Place
    operations: Sequence[Operation]
    started_at: float = 0.0
    """When the execution started, as far as the step knows: who ends it has the say."""


# --- answers ---


class Progress(Struct, frozen=True, gc=False):
    """How far a barrier has come."""

    processed: int
    total: int
    failed: int
    skipped: int


class Ending(Struct, frozen=True):
    """The execution has ended, and this step is the one that says so."""

    status: str
    at: float
    contexts: Sequence[bytes] = ()
    """What the branches that ended left, in path order."""
    error: bytes | None = None
    reason: str = ""
    started_at: float = 0.0


class Answer(Struct, gc=False):
    """What became of a commit."""

    gone: bool = False
    """The execution or an enclosing item has ended: drop the branch."""
    dropped: bool = False
    """The item, or one around it, has failed: the branch was ended instead."""
    record: bytes | None = None
    """Another outcome is on record, and nothing else of the commit was done."""
    opened: list[str] = []
    """Merges this step opened (or made fail): it publishes what follows them."""
    dead: list[str] = []
    """Merges this step found dead: it passes the news on."""
    release: bytes | None = None
    """The Task of the barrier this step closed."""
    refill: tuple[int, int] | None = None
    """Items [from, to) of the enclosing fan-out, for which this step publishes `refill_task`."""
    refill_task: bytes = b""
    progress: Progress | None = None
    arrived: tuple[int, int] | None = None
    """Arrivals a merge has seen and expects, while it waits."""
    rearmed: bool = False
    ending: Ending | None = None


class Lease(Struct, frozen=True):
    """May this step run here and now?"""

    gone: bool = False
    dropped: bool = False
    """Its item has failed: an empty commit ends the branch."""
    fence: int = 0
    """Granted, as the fence-th start of this step."""
    record: bytes | None = None
    """It has run: this is its outcome."""
    busy_until: float | None = None
    """Somebody else runs it."""


class Arrival(Struct, frozen=True):
    """A live arrival at a merge."""

    order: int
    step: str
    payload: bytes


class MergeView(Struct, frozen=True):
    """A merge that has opened or failed."""

    arrivals: Sequence[Arrival]
    failed: str = ""
    """Why it failed: `timeout` or `impossible`."""
    expected: int = 0
    winner: str = ""
    """The step that arrived last before it opened."""


class BarrierView(Struct, frozen=True):
    """A barrier that has closed."""

    total: int
    succeeded: int
    failed: int
    skipped: int
    failure: str = ""
    """Why the fan-out failed: `timeout` or `items`."""
    folds: tuple[tuple[float | int, int, float | int, float | int], ...] = ()
    first_error: bytes | None = None


class State(Protocol):
    """Atomic shared working memory of executions.

    StateLost from any call says that State was emptied while the execution was running.
    """

    @property
    def epoch(self) -> str:
        """Which life of State this is: a State that was emptied starts another; empty where it cannot be."""

    async def check(self) -> bool:
        """Look whether State is still in the same life; False if it was emptied."""

    async def apply(self, execution: str, commits: Sequence[Commit]) -> list[Answer]:
        """Carry out each commit atomically, in order; one answer each."""

    async def seed(self, execution: str, seeds: Sequence[Seed]) -> None:
        """Put outcomes on record before their steps, or even their scopes, exist; what stands stays."""

    async def lease(
        self, execution: str, steps: Sequence[tuple[str, Place]], attempt: int, until: float
    ) -> list[Lease]:
        """Ask for the right to run these steps until `until`; each grant counts as a start."""

    async def renew(self, execution: str, step: str, fence: int, until: float) -> bool:
        """Keep a lease; False if it is lost."""

    async def give_back(self, execution: str, steps: Sequence[tuple[str, int]]) -> None:
        """Give (step, fence) leases back unused, as if never started."""

    async def put(self, execution: str, values: Mapping[str, bytes]) -> None:
        """Store values under their hashes, unless the execution is buried."""

    async def get(self, execution: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The stored values; what is missing is left out."""

    async def barrier(self, execution: str, barrier: str) -> BarrierView | None:
        """A closed barrier."""

    async def slots(self, execution: str, barrier: str, start: int, limit: int) -> list[tuple[int, bytes]]:
        """Results of a closed barrier, by item, from `start` on; skipped items are left out."""

    async def merge(self, execution: str, merge: str) -> MergeView | None:
        """A merge that is no longer waiting."""

    async def bury(self, execution: str, keep: Iterable[str], until: float) -> None:
        """Forget an ended execution but for its tombstone and the values `keep`, which go at `until`."""

    async def park(self, execution: str, step: str, task: bytes) -> bool:
        """Keep the Task of a paused execution; False if it is not paused."""

    async def pause(self, execution: str) -> bool:
        """Pause an execution; False if it is not alive."""

    async def unpause(self, execution: str) -> list[bytes]:
        """Resume it: the Tasks that were parked stay parked until `unparked`."""

    async def unparked(self, execution: str) -> None:
        """Forget the parked Tasks of an execution that goes on: they have been published."""

    async def news(self) -> tuple[frozenset[str], frozenset[str]]:
        """The executions that ended lately, and those that are paused."""

    async def live(self) -> list[str]:
        """The executions that have not ended."""

    async def standings(self, executions: Sequence[str]) -> dict[str, Standing]:
        """How these executions stand; those that State does not know are left out."""

    async def holding(self, execution: str, limit: int) -> Holding | None:
        """What keeps an execution alive, at most `limit` of each kind; None if it is unknown or buried."""

    async def claim(self, now: float, limit: int, until: float) -> list[Timer]:
        """Take due timers, which nobody else gets before `until`."""

    async def discharge(self, timers: Sequence[Timer]) -> None:
        """Remove timers whose Tasks have been published; a branch that slept in one counts as progress."""

    async def release(self, execution: str, timer: str) -> Timer | None:
        """Take one timer out of its turn."""

    async def wake(self, execution: str, timer: str, task: bytes, due: float) -> bool:
        """Have a timer that is never due publish this Task at `due`, another than everybody else's.

        False if there is no such timer, or somebody else was first.
        """

    async def timers(self, limit: int) -> list[Timer]:
        """The timers that are due next, of all executions."""

    async def next_due(self) -> float | None:
        """When the next timer is due."""

    async def armed(self, timeout: float | None) -> None:
        """Return when a timer was armed that is due earlier than those before, or after `timeout` seconds."""


class Delivery(Struct, frozen=True, gc=False):
    """A Task in a worker's hands, until it is finished or given back."""

    tag: int
    task: Task
    redelivered: bool = False
    retries: int = 0


class DeadLetter(Struct, frozen=True):
    """A message nobody can work on, and why."""

    reason: str
    body: bytes
    node: str = ""
    execution: str = ""
    attempt: int = 0
    id: str = ""
    at: float = 0.0
    """When it was given up, where that is known."""


class Broker(Protocol):
    """Moves Tasks, statuses and completions, at least once each."""

    async def publish(self, tasks: Sequence[Task], completions: Sequence[CompletionMessage] = ()) -> None:
        """Publish, and return when it is safe."""

    async def finish(self, delivery: Delivery, tasks: Sequence[Task] = ()) -> None:
        """Publish these Tasks, then acknowledge the delivery."""

    async def retry(self, delivery: Delivery, delay: float) -> None:
        """Deliver this again after `delay` seconds, one retry older."""

    async def give_back(self, delivery: Delivery) -> None:
        """Put a delivery back, as if never taken; one that is finished stays finished."""

    @property
    def listened(self) -> bool:
        """Whether anybody hears statuses; if not, none need be made."""

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Park a delivery nobody can work on, with the reason."""

    async def letters(self, after: str, limit: int) -> list[DeadLetter]:
        """Dead letters, the oldest first, from the one behind `after` on; they stay where they are."""

    async def letter(self, id: str) -> DeadLetter | None:
        """One dead letter."""

    async def redrive(self, letter: str) -> bool:
        """Put a dead letter back to be delivered; False if there is none. MessageError if it is no Task."""

    async def drop(self, letter: str) -> bool:
        """Forget a dead letter; False if there is none."""

    def emit(self, statuses: Sequence[NodeStatusMessage]) -> None:
        """Send statuses; they may be lost in a crash."""

    def deliveries(self, prefetch: int) -> AsyncIterator[Delivery]:
        """Take Tasks, at most `prefetch` unfinished ones at a time."""

    def completions(self) -> AsyncIterator[CompletionMessage]:
        """Completions, each until `completed` is called for it."""

    async def completed(self, completion: CompletionMessage) -> None:
        """Acknowledge a completion."""
