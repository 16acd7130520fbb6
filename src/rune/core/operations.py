"""What a step may ask of State, carried out atomically, and what State answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rune.core.outcome import Policy

__all__ = [
    "Answer",
    "Arm",
    "Arrival",
    "ArriveAt",
    "BarrierView",
    "Commit",
    "End",
    "Ending",
    "Expire",
    "Extend",
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
    sets: tuple[tuple[str, bytes], ...] = ()
    """Variables of the execution that it set."""
    turn: int = 0
    """When it set them, among all that did, so that they are set now, and what a later turn set stays.

    Without it they are set when this execution comes to the step, which it may not do.
    """


# --- operations: what one commit may ask, carried out in order, all or nothing ---


class Record(Struct, frozen=True, tag=True, gc=False):
    """Keep this outcome as the step's one result. If another stands, nothing of the commit is done."""

    outcome: bytes
    fence: int = 0
    sets: tuple[tuple[str, bytes], ...] = ()
    """Variables of the execution that it sets, once: who is recorded last has the say."""


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
    lazy: bool = False
    """How many items there are is found out by reading: the opener is the first to be told to read on."""


class Extend(Struct, frozen=True, tag=True):
    """The source that the step reads was read on: `count` more items, the last ones if `ended`."""

    count: int = 0
    ended: bool = False
    refill: bytes = b""
    """The Task that publishes these items, in place of the one before."""
    release: bytes = b""
    """The Task that goes on once all items are known, in place of the one before."""
    failure: bytes | None = None
    """The `Failed` of a reading that was given up: it closes the barrier at once."""


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


Operation = Record | TryAgain | Settle | ArriveAt | Skip | Open | Extend | Arm | Expire | End


class Commit(Struct, frozen=True, gc=False):
    """What one step asks of State, atomically."""

    step: str
    place: Place
    operations: Sequence[Operation]
    started_at: float = 0.0
    """When the execution started, as far as the step knows: who ends it has the say."""
    reads: str = ""
    """The barrier whose lazy source this step reads: it is no branch of its scope.

    If its item has failed, the fan-out gets no more items, instead of a branch being ended.
    """


# --- answers ---


class Progress(Struct, frozen=True, gc=False):
    """How far a barrier has come."""

    processed: int
    total: int | None
    """None while nobody knows."""
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
    turn: int = 0
    """Where the outcome on record sets variables: when, among all that do."""
    opened: list[str] = []
    """Merges this step opened (or made fail): it publishes what follows them."""
    dead: list[str] = []
    """Merges this step found dead: it passes the news on."""
    release: bytes | None = None
    """The Task of the barrier this step closed."""
    refill: tuple[int, int] | None = None
    """Items [from, to) of the enclosing fan-out, for which this step publishes `refill_task`.

    An empty range of a lazy fan-out: it is to be read on from there.
    """
    reads: bool = False
    """Besides those items, whose source is lazy: it is to be read on from behind them, too."""
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
    turn: int = 0
    """Where the record sets variables: when, among all that do."""
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
    """Why the fan-out failed: `timeout`, `items`, or `source` where that could not be read."""
    folds: tuple[tuple[float | int, int, float | int, float | int], ...] = ()
    first_error: bytes | None = None
    """Of the items that failed; of a source, the `Failed` of its reading."""
